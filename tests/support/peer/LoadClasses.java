import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.internals.Exit;

/** Runs command lines of Kafka's tools one after the other in this JVM, however each of them ends. */
public final class LoadClasses {
    private static final class Ended extends RuntimeException {}

    private LoadClasses() {}

    public static void main(String[] lines) throws ReflectiveOperationException {
        Exit.setExitProcedure((status, message) -> { throw new Ended(); });
        Exit.setHaltProcedure((status, message) -> { throw new Ended(); });
        for (String line : lines) {
            var words = line.split(" ");
            Object arguments = Arrays.copyOfRange(words, 1, words.length);
            try {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, arguments);
            } catch (InvocationTargetException error) {
                System.err.println(line + ": " + error.getCause());
            }
        }
    }
}
