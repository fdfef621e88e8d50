import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.PartitionReassignment;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;

/** What administrators ask of a cluster: who leads, who holds what, and that it be otherwise. */
final class Reassigning implements AutoCloseable {
    private final Admin admin;

    Reassigning(String bootstrap) {
        admin = Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap));
    }

    void teach(Map<String, Judge.Verb> verbs) {
        verbs.put("createPlaced", this::createPlaced);
        verbs.put("placement", this::placement);
        verbs.put("reassign", this::reassign);
        verbs.put("reassignments", this::reassignments);
        verbs.put("electLeader", this::electLeader);
    }

    @Override
    public void close() {
        admin.close();
    }

    private Object createPlaced(JsonNode question) throws Exception {
        NewTopic topic = new NewTopic(question.get("topic").asText(), Map.of(0, nodes(question)));
        return admin.createTopics(List.of(topic)).all().get();
    }

    private Object placement(JsonNode question) throws Exception {
        String name = question.get("topic").asText();
        TopicDescription found = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
        TopicPartitionInfo partition = found.partitions().get(0);
        Map<String, Object> answer = new HashMap<>();
        answer.put("leader", partition.leader() == null ? -1 : partition.leader().id());
        answer.put("replicas", partition.replicas().stream().map(Node::id).toList());
        answer.put("inSync", partition.isr().stream().map(Node::id).toList());
        return answer;
    }

    private Object reassign(JsonNode question) throws Exception {
        Optional<NewPartitionReassignment> wanted =
                question.get("nodes").isNull() ? Optional.empty() : Optional.of(new NewPartitionReassignment(nodes(question)));
        return admin.alterPartitionReassignments(Map.of(partition(question), wanted)).all().get();
    }

    private Object reassignments(JsonNode question) throws Exception {
        Map<TopicPartition, PartitionReassignment> found =
                admin.listPartitionReassignments(Set.of(partition(question))).reassignments().get();
        return found.values().stream().map(PartitionReassignment::replicas).toList();
    }

    private Object electLeader(JsonNode question) throws Exception {
        return admin.electLeaders(ElectionType.PREFERRED, Set.of(partition(question))).all().get();
    }

    private static TopicPartition partition(JsonNode question) {
        return new TopicPartition(question.get("topic").asText(), 0);
    }

    private static List<Integer> nodes(JsonNode question) {
        List<Integer> nodes = new ArrayList<>();
        question.get("nodes").forEach(node -> nodes.add(node.asInt()));
        return nodes;
    }
}
