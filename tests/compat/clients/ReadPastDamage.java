import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Apache Kafka's own consumer: reads partition 0 of a topic up to an offset; seeks one offset further after an error. */
public class ReadPastDamage {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        TopicPartition partition = new TopicPartition(args[1], 0);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (consumer.position(partition) < Long.parseLong(args[2])) {
                try {
                    consumer.poll(Duration.ofSeconds(1)).forEach(record -> System.out.println(
                            record.offset() + " " + new String(record.value(), StandardCharsets.UTF_8)));
                } catch (KafkaException error) {
                    long position = consumer.position(partition);
                    System.out.println("error " + position + " " + error.getMessage());
                    consumer.seek(partition, position + 1);
                }
            }
        }
    }
}
