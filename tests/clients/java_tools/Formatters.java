import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.kafka.tools.consumer.ConsoleConsumer;
import org.apache.kafka.tools.consumer.ConsoleConsumerOptions;

/** kafka-console-consumer, several times in one JVM: each line of the file that is named is its arguments. */
public final class Formatters {
    public static void main(String[] arguments) throws Exception {
        List<String> runs = Files.readAllLines(Path.of(arguments[0]), StandardCharsets.UTF_8);
        for (String run : runs) {
            System.out.println("\n# " + run);
            try {
                ConsoleConsumer.run(new ConsoleConsumerOptions(run.split(" ")));
            } catch (Throwable failure) {
                System.out.println("\n! " + failure);
            }
        }
        System.out.println("\n# end");
        System.out.flush();
        Runtime.getRuntime().halt(0); // the tool's own hooks wait for a consumer that is still running
    }
}
