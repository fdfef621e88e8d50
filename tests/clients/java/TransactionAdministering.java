import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.common.TopicPartition;

/** What administrators ask and do about transactions. */
final class TransactionAdministering implements AutoCloseable {
    private final String bootstrap;
    private Admin admin;

    TransactionAdministering(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void teach(Map<String, Judge.Verb> verbs) {
        verbs.put("transactions", this::transactions);
        verbs.put("transaction", this::transaction);
        verbs.put("openTransactions", this::openTransactions);
        verbs.put("abortTransaction", this::abortTransaction);
        verbs.put("terminateTransaction", this::terminateTransaction);
        verbs.put("fenceProducers", this::fenceProducers);
        verbs.put("transactionVersion", this::transactionVersion);
    }

    @Override
    public void close() {
        if (admin != null) {
            admin.close();
        }
    }

    private Admin admin() {
        if (admin == null) {
            admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 15_000, "request.timeout.ms", 10_000));
        }
        return admin;
    }

    /** State by transactional id, of those that every filter lets through. */
    private Object transactions(JsonNode question) throws Exception {
        ListTransactionsOptions filters = new ListTransactionsOptions();
        if (question.has("state")) {
            filters.filterStates(List.of(TransactionState.parse(question.get("state").asText())));
        }
        if (question.has("producerId")) {
            filters.filterProducerIds(List.of(question.get("producerId").asLong()));
        }
        if (question.has("longerThanMs")) {
            filters.filterOnDuration(question.get("longerThanMs").asLong());
        }
        if (question.has("pattern")) {
            filters.filterOnTransactionalIdPattern(question.get("pattern").asText());
        }
        Map<String, String> states = new HashMap<>();
        for (TransactionListing each : admin().listTransactions(filters).all().get()) {
            states.put(each.transactionalId(), each.state().toString());
        }
        return states;
    }

    private Object transaction(JsonNode question) throws Exception {
        String id = question.get("transactionalId").asText();
        TransactionDescription found = admin().describeTransactions(List.of(id)).description(id).get();
        Map<String, Object> answer = new HashMap<>();
        answer.put("state", found.state().toString());
        answer.put("producerId", found.producerId());
        answer.put("epoch", found.producerEpoch());
        answer.put("timeoutMs", found.transactionTimeoutMs());
        answer.put("startedMs", found.transactionStartTimeMs().isPresent() ? found.transactionStartTimeMs().getAsLong() : null);
        answer.put("places", found.topicPartitions().stream().map(place -> List.of(place.topic(), place.partition())).toList());
        return answer;
    }

    /** [producer id, epoch, coordinator epoch, first offset] of each producer that has a transaction open here. */
    private Object openTransactions(JsonNode question) throws Exception {
        TopicPartition place = place(question);
        return admin().describeProducers(List.of(place)).partitionResult(place).get().activeProducers().stream()
                .filter(each -> each.currentTransactionStartOffset().isPresent())
                .map(each -> Arrays.asList(
                        each.producerId(),
                        each.producerEpoch(),
                        each.coordinatorEpoch().orElse(-1),
                        each.currentTransactionStartOffset().getAsLong()))
                .toList();
    }

    private Object abortTransaction(JsonNode question) throws Exception {
        long producerId = question.get("producerId").asLong();
        short epoch = (short) question.get("epoch").asInt();
        int coordinatorEpoch = question.get("coordinatorEpoch").asInt();
        AbortTransactionSpec spec = new AbortTransactionSpec(place(question), producerId, epoch, coordinatorEpoch);
        return admin().abortTransaction(spec).all().get();
    }

    private Object terminateTransaction(JsonNode question) throws Exception {
        return admin().forceTerminateTransaction(question.get("transactionalId").asText()).result().get();
    }

    private Object fenceProducers(JsonNode question) throws Exception {
        return admin().fenceProducers(List.of(question.get("transactionalId").asText())).all().get();
    }

    private Object transactionVersion(JsonNode question) throws Exception {
        FinalizedVersionRange found =
                admin().describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version");
        return found == null ? null : (int) found.maxVersionLevel();
    }

    private static TopicPartition place(JsonNode question) {
        return new TopicPartition(question.get("topic").asText(), question.get("partition").asInt());
    }
}
