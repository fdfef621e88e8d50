import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.config.ConfigResource;

/** Admin questions that tools ask now and then. */
final class Rarely implements AutoCloseable {
    private final Admin admin;

    Rarely(String bootstrap) {
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 15_000, "request.timeout.ms", 10_000));
    }

    void teach(Map<String, Judge.Verb> verbs) {
        verbs.put("listOffsets", this::listOffsets);
        verbs.put("tieredOffsets", this::tieredOffsets);
        verbs.put("topicOperations", this::topicOperations);
        verbs.put("moveToLogDir", this::moveToLogDir);
        verbs.put("logDir", this::logDir);
        verbs.put("setGroupOffset", this::setGroupOffset);
        verbs.put("groupOffset", this::groupOffset);
        verbs.put("deleteGroupOffset", this::deleteGroupOffset);
        verbs.put("removeMembers", this::removeMembers);
        verbs.put("producers", this::producers);
        verbs.put("electLeaders", this::electLeaders);
        verbs.put("configResources", this::configResources);
        verbs.put("brokerConfig", this::brokerConfig);
        verbs.put("resetTopicConfig", this::resetTopicConfig);
        verbs.put("describeById", this::describeById);
        verbs.put("deleteById", this::deleteById);
        verbs.put("features", question -> admin.describeFeatures().featureMetadata().get().supportedFeatures().keySet());
    }

    @Override
    public void close() {
        admin.close();
    }

    private Object listOffsets(JsonNode question) throws Exception {
        return offsets(
                question,
                Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(), "maxTimestamp", OffsetSpec.maxTimestamp()));
    }

    private Object tieredOffsets(JsonNode question) throws Exception {
        return offsets(
                question,
                Map.of(
                        "earliestLocal", OffsetSpec.earliestLocal(),
                        "latestTiered", OffsetSpec.latestTiered(),
                        "earliestPendingUpload", OffsetSpec.earliestPendingUpload()));
    }

    private Object offsets(JsonNode question, Map<String, OffsetSpec> specs) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Map.Entry<String, OffsetSpec> spec : specs.entrySet()) {
            ListOffsetsResult.ListOffsetsResultInfo info =
                    admin.listOffsets(Map.of(partition(question), spec.getValue())).partitionResult(partition(question)).get();
            found.put(spec.getKey(), info.offset());
        }
        return found;
    }

    private Object topicOperations(JsonNode question) throws Exception {
        DescribeTopicsOptions options = new DescribeTopicsOptions().includeAuthorizedOperations(true);
        TopicDescription found = admin.describeTopics(Set.of(question.get("topic").asText()), options)
                .allTopicNames()
                .get()
                .values()
                .iterator()
                .next();
        return found.authorizedOperations().stream().map(AclOperation::name).sorted().toList();
    }

    private Object logDir(JsonNode question) throws Exception {
        return admin.describeReplicaLogDirs(Set.of(replica(question))).all().get().get(replica(question)).getCurrentReplicaLogDir();
    }

    private Object moveToLogDir(JsonNode question) throws Exception {
        return admin.alterReplicaLogDirs(Map.of(replica(question), question.get("path").asText())).all().get();
    }

    private TopicPartitionReplica replica(JsonNode question) throws Exception {
        int node = admin.describeCluster().controller().get().id();
        return new TopicPartitionReplica(question.get("topic").asText(), 0, node);
    }

    private Object setGroupOffset(JsonNode question) throws Exception {
        OffsetAndMetadata offset = new OffsetAndMetadata(question.get("offset").asLong(), "set by hand");
        return admin.alterConsumerGroupOffsets(group(question), Map.of(partition(question), offset)).all().get();
    }

    private Object groupOffset(JsonNode question) throws Exception {
        OffsetAndMetadata found =
                admin.listConsumerGroupOffsets(group(question)).partitionsToOffsetAndMetadata().get().get(partition(question));
        return found == null ? null : List.of(found.offset(), found.metadata());
    }

    private Object deleteGroupOffset(JsonNode question) throws Exception {
        return admin.deleteConsumerGroupOffsets(group(question), Set.of(partition(question))).all().get();
    }

    private Object removeMembers(JsonNode question) throws Exception {
        return admin.removeMembersFromConsumerGroup(group(question), new RemoveMembersFromConsumerGroupOptions()).all().get();
    }

    private Object producers(JsonNode question) throws Exception {
        List<ProducerState> states =
                admin.describeProducers(List.of(partition(question))).partitionResult(partition(question)).get().activeProducers();
        return states.stream().map(ProducerState::lastSequence).toList();
    }

    private Object electLeaders(JsonNode question) throws Exception {
        return admin.electLeaders(ElectionType.PREFERRED, Set.of(partition(question)))
                .partitions()
                .get()
                .get(partition(question))
                .map(failure -> (int) org.apache.kafka.common.protocol.Errors.forException(failure).code())
                .orElse(0);
    }

    private Object configResources(JsonNode question) throws Exception {
        return admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC), new org.apache.kafka.clients.admin.ListConfigResourcesOptions())
                .all()
                .get()
                .stream()
                .map(ConfigResource::name)
                .toList();
    }

    private Object brokerConfig(JsonNode question) throws Exception {
        String id = String.valueOf(admin.describeCluster().controller().get().id());
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, id);
        Map<String, String> values = new HashMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(broker)).all().get().get(broker).entries()) {
            values.put(entry.name(), entry.value());
        }
        return values;
    }

    private Object resetTopicConfig(JsonNode question) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, question.get("topic").asText());
        ConfigEntry entry = new ConfigEntry(question.get("key").asText(), null);
        org.apache.kafka.clients.admin.AlterConfigOp delete =
                new org.apache.kafka.clients.admin.AlterConfigOp(entry, org.apache.kafka.clients.admin.AlterConfigOp.OpType.DELETE);
        return admin.incrementalAlterConfigs(Map.of(topic, List.of(delete))).all().get();
    }

    private Object describeById(JsonNode question) throws Exception {
        Uuid id = topicId(question);
        TopicDescription found = admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id);
        return List.of(found.name(), found.partitions().size());
    }

    private Object deleteById(JsonNode question) throws Exception {
        return admin.deleteTopics(TopicCollection.ofTopicIds(List.of(topicId(question)))).all().get();
    }

    private Uuid topicId(JsonNode question) throws Exception {
        String topic = question.get("topic").asText();
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
    }

    private static String group(JsonNode question) {
        return question.get("group").asText();
    }

    private static TopicPartition partition(JsonNode question) {
        return new TopicPartition(question.get("topic").asText(), 0);
    }
}
