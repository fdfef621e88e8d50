import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Questions to the broker about topics, groups and itself. */
final class Administering implements AutoCloseable {
    private final Admin admin;

    Administering(String bootstrap) {
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 15_000, "request.timeout.ms", 10_000));
    }

    void teach(Map<String, Judge.Verb> verbs) {
        verbs.put("createTopic", this::createTopic);
        verbs.put("deleteTopic", question -> admin.deleteTopics(List.of(topic(question))).all().get());
        verbs.put("topics", this::topics);
        verbs.put("addPartitions", this::addPartitions);
        verbs.put("topicConfig", this::topicConfig);
        verbs.put("setTopicConfig", this::setTopicConfig);
        verbs.put("deleteRecords", this::deleteRecords);
        verbs.put("groups", this::groups);
        verbs.put("group", this::group);
        verbs.put("deleteGroup", question -> admin.deleteConsumerGroups(List.of(question.get("group").asText())).all().get());
        verbs.put("cluster", this::cluster);
        verbs.put("logSizes", this::logSizes);
    }

    @Override
    public void close() {
        admin.close();
    }

    private Object createTopic(JsonNode question) throws Exception {
        Map<String, String> config = new HashMap<>();
        question.get("config").fields().forEachRemaining(field -> config.put(field.getKey(), field.getValue().asText()));
        NewTopic topic = new NewTopic(topic(question), question.get("partitions").asInt(), (short) 1).configs(config);
        return admin.createTopics(List.of(topic)).all().get();
    }

    private Map<String, Integer> topics() throws Exception {
        Map<String, Integer> partitions = new HashMap<>();
        Set<String> names = admin.listTopics().names().get();
        admin.describeTopics(names).allTopicNames().get().forEach((name, topic) -> partitions.put(name, topic.partitions().size()));
        return partitions;
    }

    private Object topics(JsonNode question) throws Exception {
        return topics();
    }

    private Object addPartitions(JsonNode question) throws Exception {
        NewPartitions total = NewPartitions.increaseTo(question.get("total").asInt());
        return admin.createPartitions(Map.of(topic(question), total)).all().get();
    }

    private Object topicConfig(JsonNode question) throws Exception {
        ConfigResource resource = resource(question);
        Map<String, String> values = new HashMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            values.put(entry.name(), entry.value());
        }
        return values;
    }

    private Object setTopicConfig(JsonNode question) throws Exception {
        ConfigEntry entry = new ConfigEntry(question.get("key").asText(), question.get("value").asText());
        AlterConfigOp set = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
        return admin.incrementalAlterConfigs(Map.of(resource(question), List.of(set))).all().get();
    }

    private Object deleteRecords(JsonNode question) throws Exception {
        TopicPartition partition = new TopicPartition(topic(question), question.get("partition").asInt());
        RecordsToDelete before = RecordsToDelete.beforeOffset(question.get("beforeOffset").asLong());
        return admin.deleteRecords(Map.of(partition, before)).lowWatermarks().get(partition).get().lowWatermark();
    }

    private Object groups(JsonNode question) throws Exception {
        return admin.listGroups().all().get().stream().map(GroupListing::groupId).toList();
    }

    private Object group(JsonNode question) throws Exception {
        String name = question.get("group").asText();
        ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
        return Map.of("state", found.groupState().toString(), "members", found.members().size());
    }

    private Object cluster(JsonNode question) throws Exception {
        DescribeClusterResult found = admin.describeCluster();
        List<String> brokers = found.nodes().get().stream().map(node -> node.host() + ":" + node.port()).toList();
        return Map.of("clusterId", found.clusterId().get(), "brokers", brokers);
    }

    private Object logSizes(JsonNode question) throws Exception {
        Map<String, Long> sizes = new HashMap<>();
        List<Integer> brokers = admin.describeCluster().nodes().get().stream().map(node -> node.id()).toList();
        for (Map<String, LogDirDescription> byFolder : admin.describeLogDirs(brokers).allDescriptions().get().values()) {
            for (LogDirDescription folder : byFolder.values()) {
                folder.replicaInfos().forEach((partition, replica) -> sizes.merge(partition.topic(), replica.size(), Long::sum));
            }
        }
        return sizes;
    }

    private static String topic(JsonNode question) {
        return question.get("topic").asText();
    }

    private static ConfigResource resource(JsonNode question) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic(question));
    }
}
