import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends lines with Apache Kafka's own client. The argument: "default", or "plain" for one without idempotence. */
public class Send {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", System.getenv("SEQGATE_BOOTSTRAP"));
        settings.put("request.timeout.ms", System.getenv("SEQGATE_REQUEST_TIMEOUT_MS"));
        if (arguments[0].equals("plain")) {
            settings.put("enable.idempotence", "false");
            settings.put("acks", "1");
        }
        String topic = System.getenv("SEQGATE_TOPIC");
        AtomicInteger failures = new AtomicInteger();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String line; (line = lines.readLine()) != null; ) {
                String value = line;
                producer.send(new ProducerRecord<>(topic, value), (stored, error) -> {
                    if (error == null) {
                        System.out.println(value);
                    } else if (failures.getAndIncrement() < 3) {
                        System.err.println(error);
                    }
                });
            }
        }
        System.exit(failures.get() == 0 ? 0 : 1);
    }
}
