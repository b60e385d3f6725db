import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Uses what clients have had since 2.8: an idempotent producer, transactions, a group, an administrator. */
public class EarlierClient {
    private static final int SENT = 1000;
    private static final int PARTITIONS = 2;

    private final String bootstrap;
    private final String topic;
    private final long deadlineNs = System.nanoTime() + Duration.ofMinutes(3).toNanos();

    private EarlierClient(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    public static void main(String[] args) throws Exception {
        System.out.println("client " + AppInfoParser.getVersion());
        new EarlierClient(args[0], args[1]).run();
    }

    private void run() throws Exception {
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
            sendIdempotently();
            sendInTransaction("committed", true);
            sendInTransaction("aborted", false);
            System.out.println("read " + read());
            System.out.println("then " + read());
            Map<TopicPartition, OffsetAndMetadata> committed =
                    admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
            System.out.println("partitions " + committed.size());
        }
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    private KafkaProducer<String, String> producer(Map<String, String> more) {
        Properties settings = settings();
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("compression.type", "zstd");
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.putAll(more);
        return new KafkaProducer<>(settings);
    }

    private void send(KafkaProducer<String, String> producer, String kind) {
        for (int number = 0; number < SENT; number++) {
            producer.send(new ProducerRecord<>(topic, number % PARTITIONS, null, kind + " " + number));
        }
    }

    private void sendIdempotently() {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            send(producer, "idempotent");
        }
    }

    private void sendInTransaction(String kind, boolean commits) {
        try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", topic))) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, kind);
            producer.flush();
            if (commits) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }

    /** Reads from where the group is to the end of the committed records; returns how many there were. */
    private int read() {
        Properties settings = settings();
        settings.put("group.id", topic);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Set.of(topic));
            int read = 0;
            while (!isAtEnd(consumer)) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                records.forEach(record -> {
                    if (record.value().startsWith("aborted")) {
                        throw new IllegalStateException(record.value());
                    }
                });
                read += records.count();
                if (System.nanoTime() > deadlineNs) {
                    throw new IllegalStateException("no end after " + read + " records");
                }
            }
            consumer.commitSync();
            return read;
        }
    }

    private boolean isAtEnd(KafkaConsumer<String, String> consumer) {
        Set<TopicPartition> assigned = consumer.assignment();
        return assigned.size() == PARTITIONS
                && consumer.endOffsets(assigned).entrySet().stream()
                        .allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
    }
}
