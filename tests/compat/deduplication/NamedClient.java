import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends records with a producer name, and asks how far the name has come: does what it reads, line by line, and says what
 * came of it or the class of the exception.
 */
public class NamedClient {
    private static Properties settings;
    private static final Map<Boolean, KafkaProducer<String, String>> producers = new HashMap<>();

    public static void main(String[] args) throws Exception {
        settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = lines.readLine()) != null) {
            String told;
            try {
                told = perform(line.split(" "));
            } catch (ExecutionException failure) {
                told = failure.getCause().getClass().getSimpleName();
            } catch (RuntimeException failure) {
                told = failure.getClass().getSimpleName();
            }
            System.out.println(told);
            System.out.flush();
        }
    }

    private static String perform(String[] words) throws Exception {
        return switch (words[0]) {
            case "send" -> send(words);
            case "committed" -> committed(words[1], new TopicPartition(words[2], 0));
            case "listed" -> listed(words[1]);
            default -> throw new IllegalArgumentException(words[0]);
        };
    }

    /** send IDEMPOTENT TOPIC NAME SEQUENCE_ID EPOCH; without an epoch if that is negative. */
    private static String send(String[] words) throws Exception {
        boolean idempotent = Boolean.parseBoolean(words[1]);
        ProducerRecord<String, String> record = new ProducerRecord<>(words[2], 0, null, words[4]);
        record.headers().add("dedup.name", words[3].getBytes(StandardCharsets.UTF_8));
        record.headers().add("dedup.sequence", words[4].getBytes(StandardCharsets.UTF_8));
        if (!words[5].startsWith("-")) {
            record.headers().add("dedup.epoch", words[5].getBytes(StandardCharsets.UTF_8));
        }
        KafkaProducer<String, String> producer = producers.computeIfAbsent(idempotent, NamedClient::producer);
        try {
            producer.send(record).get();
        } catch (ExecutionException failure) {
            producers.remove(idempotent).close();
            throw failure;
        }
        return "ok";
    }

    private static KafkaProducer<String, String> producer(boolean idempotent) {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("acks", "all");
        own.put("enable.idempotence", Boolean.toString(idempotent));
        return new KafkaProducer<>(own);
    }

    private static String committed(String group, TopicPartition partition) {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("group.id", group);
        own.put("enable.auto.commit", "false");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(own)) {
            return shown(consumer.committed(Set.of(partition)).get(partition));
        }
    }

    private static String listed(String group) throws Exception {
        try (Admin admin = Admin.create(settings)) {
            Map<String, ListConsumerGroupOffsetsSpec> asked = Map.of(group, new ListConsumerGroupOffsetsSpec());
            Map<TopicPartition, OffsetAndMetadata> found =
                admin.listConsumerGroupOffsets(asked).partitionsToOffsetAndMetadata(group).get();
            StringBuilder told = new StringBuilder();
            found.forEach((partition, offset) -> told.append(partition).append('=').append(shown(offset)).append(' '));
            return told.toString().trim();
        }
    }

    private static String shown(OffsetAndMetadata offset) {
        return offset == null ? "none" : offset.offset() + " " + offset.metadata();
    }
}
