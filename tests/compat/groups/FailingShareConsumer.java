import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A share consumer that accepts all records but those whose key says how they fail, and logs what it does.
 *
 * <p>A record with the key "release" is released. For one with the key "hang" the consumer hangs until its lock has
 * timed out, and releases it too late. The lines say, with times in milliseconds since the Unix epoch:
 *
 * <pre>
 * got VALUE COUNT SINCE AT       a delivery, acquired between the two times; logged before it is acknowledged
 * confirmed KIND VALUE COUNT     the gateway has stored the acknowledgement (ACCEPT or RELEASE)
 * refused KIND VALUE COUNT WHY   the acknowledgement failed, or nobody knows what became of it
 * </pre>
 */
public class FailingShareConsumer {
    private record Place(String topic, int partition, long offset) {}

    private record Told(AcknowledgeType kind, String value, short count) {}

    private final Map<Place, Told> told = new HashMap<>();
    private final StringBuilder lines = new StringBuilder();
    private final KafkaShareConsumer<String, String> consumer;
    private final String topic;
    private final long hangMs;
    private volatile boolean ends;

    private FailingShareConsumer(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[2]);
        settings.put("share.acknowledgement.mode", "explicit");
        // A poll returns all that one fetch has acquired: the lines say when that was.
        settings.put("share.acquire.mode", "record_limit");
        settings.put("max.poll.records", "100");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        consumer = new KafkaShareConsumer<>(settings);
        topic = args[1];
        hangMs = Long.parseLong(args[3]);
    }

    public static void main(String[] args) {
        FailingShareConsumer made = new FailingShareConsumer(args);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            made.ends = true;
            made.consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        made.run();
    }

    private void run() {
        consumer.setAcknowledgementCommitCallback(this::completed);
        consumer.subscribe(List.of(topic));
        long since = System.currentTimeMillis();
        // After a poll without records the client may fetch once more while the next records are processed. So
        // those of a poll were acquired after the records of the poll before had come.
        long before = since;
        try {
            while (!ends) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofSeconds(1));
                flush();
                if (!records.isEmpty()) {
                    process(records, before);
                    before = since;
                    since = System.currentTimeMillis();
                }
            }
        } catch (WakeupException ended) {
            // the process ends
        }
        consumer.close(Duration.ofSeconds(60));
        flush();
    }

    private void process(ConsumerRecords<String, String> records, long since) {
        List<ConsumerRecord<String, String>> hanging = new ArrayList<>();
        long at = System.currentTimeMillis();
        for (ConsumerRecord<String, String> record : records) {
            short count = record.deliveryCount().get();
            lines.append("got ").append(record.value()).append(' ').append(count);
            lines.append(' ').append(since).append(' ').append(at).append('\n');
        }
        flush();
        for (ConsumerRecord<String, String> record : records) {
            switch (record.key()) {
                case "hang" -> hanging.add(record);
                case "release" -> acknowledge(record, AcknowledgeType.RELEASE);
                default -> acknowledge(record, AcknowledgeType.ACCEPT);
            }
        }
        if (!hanging.isEmpty()) {
            consumer.commitSync();
            flush();
            try {
                Thread.sleep(hangMs);
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
            hanging.forEach(record -> acknowledge(record, AcknowledgeType.RELEASE));
        }
    }

    private void acknowledge(ConsumerRecord<String, String> record, AcknowledgeType kind) {
        Place place = new Place(record.topic(), record.partition(), record.offset());
        told.put(place, new Told(kind, record.value(), record.deliveryCount().get()));
        consumer.acknowledge(record, kind);
    }

    private void completed(Map<TopicIdPartition, Set<Long>> offsets, Exception error) {
        String outcome = error == null ? "" : " " + error.getClass().getSimpleName();
        offsets.forEach((partition, done) -> done.forEach(offset -> {
            Told what = told.remove(new Place(partition.topic(), partition.partition(), offset));
            lines.append(error == null ? "confirmed " : "refused ").append(what.kind().name()).append(' ');
            lines.append(what.value()).append(' ').append(what.count()).append(outcome).append('\n');
        }));
    }

    private void flush() {
        System.out.print(lines);
        System.out.flush();
        lines.setLength(0);
    }
}
