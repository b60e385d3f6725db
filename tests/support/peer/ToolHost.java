import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's tools one after the other in one JVM, because the start of a JVM takes most of a tool's time.
 *
 * A request is a count and as many texts: the class, the standard input, and the arguments. The answer is the exit
 * code and two texts, standard output and standard error. A text is its length in bytes and the bytes, in UTF-8.
 */
public class ToolHost {
    public static void main(String[] unused) throws IOException {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        while (true) {
            List<String> words = new ArrayList<>();
            try {
                for (int left = requests.readInt(); left > 0; left--) {
                    words.add(new String(requests.readNBytes(requests.readInt()), StandardCharsets.UTF_8));
                }
            } catch (EOFException theTestsHaveEnded) {
                Runtime.getRuntime().halt(0);
            }
            Run run = new Run();
            answers.writeInt(run.toItsEnd(words));
            for (Output output : List.of(run.stdout, run.stderr)) {
                byte[] bytes = output.toByteArray();
                answers.writeInt(bytes.length);
                answers.write(bytes);
            }
            answers.flush();
        }
    }

    /** What a tool prints, until it exits. */
    private static class Output extends ByteArrayOutputStream {
        private boolean hasEnded;

        @Override
        public synchronized void write(int one) {
            if (!hasEnded) {
                super.write(one);
            }
        }

        @Override
        public synchronized void write(byte[] bytes, int from, int count) {
            if (!hasEnded) {
                super.write(bytes, from, count);
            }
        }

        synchronized void end() {
            hasEnded = true;
        }
    }

    /** Unwinds the stack of a tool that exits. */
    private static class Exited extends Error {}

    private static class Run {
        final Output stdout = new Output();
        final Output stderr = new Output();
        private final CountDownLatch ended = new CountDownLatch(1);
        private final List<Runnable> hooks = new ArrayList<>();
        private int code;

        int toItsEnd(List<String> words) {
            Exit.setExitProcedure((code, message) -> exit(code));
            Exit.setHaltProcedure((code, message) -> exit(code));
            Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
            InputStream input = new ByteArrayInputStream(words.get(1).getBytes(StandardCharsets.UTF_8));
            System.setIn(input);
            System.setOut(new PrintStream(stdout, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(stderr, true, StandardCharsets.UTF_8));
            Thread thread = new Thread(() -> call(words.get(0), words.subList(2, words.size())), "main");
            thread.start();
            try {
                ended.await();
                hooks.forEach(Runnable::run);
                thread.join();
            } catch (InterruptedException impossible) {
                throw new IllegalStateException(impossible);
            }
            return code;
        }

        private void call(String name, List<String> arguments) {
            try {
                Class<?> tool = Class.forName(name);
                tool.getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
                end(0);
            } catch (InvocationTargetException failed) {
                System.err.print("Exception in thread \"main\" ");
                failed.getCause().printStackTrace();
                end(1);
            } catch (ReflectiveOperationException failed) {
                failed.printStackTrace();
                end(1);
            }
        }

        private void exit(int code) {
            end(code);
            throw new Exited();
        }

        /** Keep the first exit code, and what was printed before; a process would have ended here. */
        private synchronized void end(int code) {
            if (ended.getCount() > 0) {
                this.code = code;
                stdout.end();
                stderr.end();
                ended.countDown();
            }
        }
    }
}
