import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.protocol.Errors;

/**
 * Java's Kafka client as a program that is asked over standard input.
 *
 * A question is a line {"verb": …, details}; the answer is a line {"answer": …}, or {"code", "message"} with the
 * number of the Kafka error. Questions are answered one after another, in order.
 */
public final class Judge {
    interface Verb {
        Object answer(JsonNode question) throws Exception;
    }

    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, Verb> verbs = new HashMap<>();
        try (Producing producing = new Producing(arguments[0]);
                Consuming consuming = new Consuming(arguments[0]);
                Administering administering = new Administering(arguments[0]);
                Rarely rarely = new Rarely(arguments[0]);
                Sharing sharing = new Sharing(arguments[0]);
                Transacting transacting = new Transacting(arguments[0]);
                TransactionAdministering transactions = new TransactionAdministering(arguments[0]);
                Reassigning reassigning = new Reassigning(arguments[0])) {
            producing.teach(verbs);
            consuming.teach(verbs);
            administering.teach(verbs);
            rarely.teach(verbs);
            sharing.teach(verbs);
            transacting.teach(verbs);
            transactions.teach(verbs);
            reassigning.teach(verbs);
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                out.println(JSON.writeValueAsString(answer(verbs, JSON.readTree(line))));
            }
        }
    }

    private static Map<String, Object> answer(Map<String, Verb> verbs, JsonNode question) {
        Map<String, Object> reply = new HashMap<>();
        try {
            reply.put("answer", verbs.get(question.get("verb").asText()).answer(question));
        } catch (Exception thrown) {
            Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
            boolean outOfRange = cause instanceof OffsetOutOfRangeException;
            reply.put("code", (outOfRange ? Errors.OFFSET_OUT_OF_RANGE : Errors.forException(cause)).code());
            reply.put("message", cause.toString());
        }
        return reply;
    }
}
