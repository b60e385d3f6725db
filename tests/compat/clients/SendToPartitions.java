import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends the lines "PARTITION VALUE" to a topic, and prints "VALUE stored" or "VALUE EXCEPTION" for each.
 * The line "flush" begins a flush, whose end prints "flushed". Arguments: BOOTSTRAP TOPIC SETTING=VALUE...
 */
public class SendToPartitions {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        for (int i = 2; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        var lines = new BufferedReader(new InputStreamReader(System.in));
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String line; (line = lines.readLine()) != null; ) {
                if (line.equals("flush")) {
                    new Thread(() -> {
                        producer.flush();
                        System.out.println("flushed");
                    }).start();
                    continue;
                }
                String[] words = line.split(" ");
                String value = words[1];
                int partition = Integer.parseInt(words[0]);
                var record = new ProducerRecord<String, String>(arguments[1], partition, null, value);
                producer.send(record, (stored, error) -> {
                    String outcome = error == null ? "stored" : error.getClass().getSimpleName();
                    System.out.println(value + " " + outcome);
                });
            }
        }
    }
}
