package orders;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.List;
import java.util.Map;
import java.util.function.IntSupplier;

/** A broker in a process of its own, which fails as the test orders. */
final class Broker implements AutoCloseable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final HttpClient http = HttpClient.newHttpClient();
    private final Process process;
    private final String control;
    private final String bootstrap;

    /** Starts `seqgate serve`; the process ends with this one. */
    Broker() throws IOException {
        String self = String.valueOf(ProcessHandle.current().pid());
        process = new ProcessBuilder("seqgate", "serve", "--listen", "127.0.0.1:0", "--test-control", "127.0.0.1:0",
                        "--exit-with", self, "--set", "seqgate.logging.level=ERROR")
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        BufferedReader lines = process.inputReader();
        control = wordAfter("test control on ", lines);
        bootstrap = wordAfter("seqgate ready on ", lines);
    }

    private static String wordAfter(String text, BufferedReader lines) throws IOException {
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.startsWith(text)) {
                return line.substring(text.length()).split("[ ,]")[0];
            }
        }
        throw new EOFException("seqgate ended before it was ready");
    }

    /** Ends the process. */
    @Override
    public void close() {
        process.destroy();
        process.onExit().join();
    }

    /** The address for clients. */
    String bootstrap() {
        return bootstrap;
    }

    /** Sends a request to the test control, and returns its answer. */
    JsonNode ask(String method, String path, Object body) {
        try {
            HttpRequest request = HttpRequest.newBuilder(URI.create(control + path))
                    .header("content-type", "application/json")
                    .method(method, BodyPublishers.ofByteArray(JSON.writeValueAsBytes(body)))
                    .build();
            var answer = http.send(request, BodyHandlers.ofString());
            assertEquals(200, answer.statusCode(), answer.body());
            return JSON.readTree(answer.body());
        } catch (IOException | InterruptedException error) {
            throw new AssertionError(error);
        }
    }

    /** Begins the test with an empty broker. */
    void reset() {
        ask("POST", "/reset", null);
    }

    /** Creates a topic with one partition. */
    void createTopic(String name) {
        ask("POST", "/topics", Map.of("name", name));
    }

    /** Lets requests fail: docs/testing.md of Seqgate has the faults. Returns what says how many failed. */
    IntSupplier order(Map<String, Object> fault) {
        int id = ask("POST", "/faults", fault).get("id").asInt();
        return () -> ask("GET", "/faults/" + id, null).get("struck").asInt();
    }

    /** Ends the broker as kill -9 does, and starts it again. */
    void kill() {
        ask("POST", "/restart", Map.of("after", "kill"));
    }

    /** Fails with a sentence that names lost, doubled and reordered values. */
    void assertExactlyOnce(String topic, List<String> values) {
        JsonNode complaint = ask("POST", "/topics/" + topic + "/exactly-once", Map.of("values", values)).get("complaint");
        assertTrue(complaint.isNull(), () -> "topic " + topic + ": " + complaint.asText());
    }
}
