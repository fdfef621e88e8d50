import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Members of share groups by name, and what administrators ask of share groups. */
final class Sharing implements AutoCloseable {
    private final String bootstrap;
    private final Map<String, KafkaShareConsumer<byte[], byte[]>> members = new HashMap<>();
    private final Map<String, Map<String, ConsumerRecord<byte[], byte[]>>> polled = new HashMap<>();
    private Admin admin;

    Sharing(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void teach(Map<String, Judge.Verb> verbs) {
        verbs.put("shareJoin", this::join);
        verbs.put("sharePoll", this::poll);
        verbs.put("shareAcknowledge", this::acknowledge);
        verbs.put("shareCommit", this::commit);
        verbs.put("shareLeave", this::leave);
        verbs.put("setGroupConfig", this::setGroupConfig);
        verbs.put("groupConfig", this::groupConfig);
        verbs.put("shareGroup", this::describe);
        verbs.put("shareOffsets", this::offsets);
        verbs.put("alterShareOffset", this::alterOffset);
        verbs.put("deleteShareOffsets", this::deleteOffsets);
        verbs.put("deleteShareGroup", this::deleteGroup);
    }

    @Override
    public void close() {
        members.values().forEach(KafkaShareConsumer::close);
        if (admin != null) {
            admin.close();
        }
    }

    private Object join(JsonNode question) {
        Map<String, Object> options = new HashMap<>();
        options.put("bootstrap.servers", bootstrap);
        options.put("group.id", question.get("group").asText());
        options.put("share.acknowledgement.mode", question.get("mode").asText());
        options.put("max.poll.records", question.get("maxRecords").asInt());
        options.put("key.deserializer", ByteArrayDeserializer.class);
        options.put("value.deserializer", ByteArrayDeserializer.class);
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(options);
        consumer.subscribe(Set.of(question.get("topic").asText()));
        members.put(question.get("member").asText(), consumer);
        return null;
    }

    private Object poll(JsonNode question) {
        String name = question.get("member").asText();
        Map<String, ConsumerRecord<byte[], byte[]>> mine = new HashMap<>();
        List<Object> rows = new ArrayList<>();
        Duration wait = Duration.ofMillis(question.get("timeoutMs").asLong());
        for (ConsumerRecord<byte[], byte[]> each : members.get(name).poll(wait)) {
            mine.put(each.partition() + "/" + each.offset(), each);
            String value = each.value() == null ? null : Base64.getEncoder().encodeToString(each.value());
            rows.add(Arrays.asList(each.partition(), each.offset(), each.deliveryCount().orElse((short) -1), value));
        }
        polled.put(name, mine);
        return rows;
    }

    private Object acknowledge(JsonNode question) {
        String name = question.get("member").asText();
        AcknowledgeType type = AcknowledgeType.valueOf(question.get("type").asText());
        for (JsonNode row : question.get("records")) {
            members.get(name).acknowledge(polled.get(name).get(row.get(0).asInt() + "/" + row.get(1).asLong()), type);
        }
        return null;
    }

    private Object commit(JsonNode question) {
        Map<String, Object> errors = new HashMap<>();
        members.get(question.get("member").asText())
                .commitSync()
                .forEach((partition, error) -> error.ifPresent(thrown -> errors.put(partition.toString(), thrown.toString())));
        return errors;
    }

    private Object leave(JsonNode question) {
        members.remove(question.get("member").asText()).close();
        return null;
    }

    private Admin admin() {
        if (admin == null) {
            admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        }
        return admin;
    }

    private Object setGroupConfig(JsonNode question) throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, question.get("group").asText());
        ConfigEntry entry = new ConfigEntry(question.get("key").asText(), question.get("value").asText());
        admin().incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
        return null;
    }

    private Object groupConfig(JsonNode question) throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, question.get("group").asText());
        Map<String, String> found = new HashMap<>();
        admin().describeConfigs(List.of(group)).all().get().get(group).entries().forEach(each -> found.put(each.name(), each.value()));
        return found;
    }

    private Object describe(JsonNode question) throws Exception {
        String name = question.get("group").asText();
        ShareGroupDescription found = admin().describeShareGroups(List.of(name)).all().get().get(name);
        return Map.of("state", found.groupState().toString(), "members", found.members().size());
    }

    private Object offsets(JsonNode question) throws Exception {
        String name = question.get("group").asText();
        Map<String, Object> found = new LinkedHashMap<>();
        admin()
                .listShareGroupOffsets(Map.of(name, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(name)
                .get()
                .forEach((partition, info) -> found.put(
                        Integer.toString(partition.partition()),
                        info == null ? null : List.of(info.startOffset(), info.lag().orElse(-1L))));
        return found;
    }

    private Object alterOffset(JsonNode question) throws Exception {
        TopicPartition partition = new TopicPartition(question.get("topic").asText(), question.get("partition").asInt());
        long offset = question.get("offset").asLong();
        admin().alterShareGroupOffsets(question.get("group").asText(), Map.of(partition, offset)).all().get();
        return null;
    }

    private Object deleteOffsets(JsonNode question) throws Exception {
        admin().deleteShareGroupOffsets(question.get("group").asText(), Set.of(question.get("topic").asText())).all().get();
        return null;
    }

    private Object deleteGroup(JsonNode question) throws Exception {
        admin().deleteShareGroups(List.of(question.get("group").asText())).all().get();
        return null;
    }
}
