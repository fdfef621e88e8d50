import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/** Kafka's command-line tools, several in one JVM: each line of the file that is named is a class and its arguments. */
public final class Tools {
    public static void main(String[] arguments) throws Exception {
        List<String> runs = Files.readAllLines(Path.of(arguments[0]), StandardCharsets.UTF_8);
        for (String run : runs) {
            String[] words = run.split(" ");
            System.out.println("\n# " + run);
            System.out.flush();
            Method tool = Class.forName("org.apache.kafka.tools." + words[0])
                    .getDeclaredMethod("mainNoExit", String[].class);
            tool.setAccessible(true);
            Object status = tool.invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            System.out.println("\n= " + status);
        }
        System.out.println("\n# end");
        System.out.flush();
    }
}
