import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command-line tools, one after the other in one JVM.
 *
 * <p>The folder that is named has a file `commands`: a line for each, with its class, what it reads on stdin, and its
 * arguments, parted by U+001F. What number N printed goes to the file `N`, its status first.
 */
public final class EveryTool {
    private static final long PATIENCE_MS = 60_000;
    private static final int SILENT = -2;
    private static final long HOOK_PATIENCE_MS = 10_000;
    private static volatile OutputStream printed = new ByteArrayOutputStream();

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        // Some tools keep the stream that they find first: it stays the same, and what is behind it changes.
        PrintStream out = new PrintStream(new Printed(), true, StandardCharsets.UTF_8);
        System.setOut(out);
        System.setErr(out);
        List<String> commands = Files.readAllLines(folder.resolve("commands"), StandardCharsets.UTF_8);
        for (int number = 0; number < commands.size(); number++) {
            String[] parts = commands.get(number).split("\u001f", -1);
            ByteArrayOutputStream text = new ByteArrayOutputStream();
            printed = text;
            System.setIn(new ByteArrayInputStream(parts[1].replace("\\n", "\n").getBytes(StandardCharsets.UTF_8)));
            int status = run(parts[0], Arrays.copyOfRange(parts, 2, parts.length));
            printed = new ByteArrayOutputStream();
            Files.writeString(folder.resolve(String.valueOf(number)), status + "\n" + text.toString(StandardCharsets.UTF_8));
        }
        Runtime.getRuntime().halt(0);
    }

    /** Like the end of a program: nothing of the tool's own runs on, and then its hooks do. */
    private static int run(String tool, String[] arguments) throws Exception {
        CompletableFuture<Integer> ended = new CompletableFuture<>();
        Exit.Procedure exit = (status, message) -> {
            ended.complete(status);
            while (true) {
                LockSupport.park();
            }
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Thread thread = new Thread(() -> ended.complete(call(tool, arguments)));
        thread.setDaemon(true);
        thread.start();
        int status;
        try {
            status = ended.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
        } catch (TimeoutException late) {
            status = SILENT;
        }
        Exit.setExitProcedure((late, message) -> LockSupport.park());
        for (Thread hook : hooks()) {
            hook.setDaemon(true);
            hook.start();
            hook.join(HOOK_PATIENCE_MS);
        }
        return status;
    }

    private static int call(String tool, String[] arguments) {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace();
            return 1;
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            return 1;
        }
    }

    /** Those that the JVM would run at its end, which are then forgotten. */
    @SuppressWarnings("unchecked")
    private static List<Thread> hooks() throws ReflectiveOperationException {
        Field field = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        field.setAccessible(true);
        Map<Thread, Thread> registered = (Map<Thread, Thread>) field.get(null);
        List<Thread> found = new ArrayList<>(registered.keySet());
        found.removeIf(hook -> !hook.getClass().getName().startsWith("org.apache.kafka") && hook.getClass() != Thread.class);
        registered.keySet().removeAll(found);
        return found;
    }

    private static final class Printed extends OutputStream {
        @Override
        public void write(int octet) throws java.io.IOException {
            printed.write(octet);
        }

        @Override
        public void write(byte[] bytes, int start, int length) throws java.io.IOException {
            printed.write(bytes, start, length);
        }
    }
}
