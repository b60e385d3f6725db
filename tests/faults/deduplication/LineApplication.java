import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.CRC32;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What applications.py does, with Apache Kafka's own producer: takes the same words and tells the same lines. */
public class LineApplication {
    private static final int WINDOW = 200;
    private static final int TELL_EVERY = 10;
    private static final int GAVE_UP = 3;

    private record Line(int number, long position, byte[] value) {
        int partition(int partitions) {
            CRC32 crc = new CRC32();
            crc.update(value);
            return (int) (crc.getValue() % partitions);
        }

        byte[] key() {
            return new String(value, StandardCharsets.UTF_8).split(" ", 2)[0].getBytes(StandardCharsets.UTF_8);
        }
    }

    private final Map<String, String> task = new HashMap<>();
    private final int partitions;
    private final boolean byKey;
    private final List<Line> lines = new ArrayList<>();
    private final Semaphore window = new Semaphore(WINDOW);
    private final AtomicInteger acknowledged = new AtomicInteger();
    private volatile Exception failure;
    private int sent;
    private int told;

    public static void main(String[] words) throws Exception {
        say("stage starting");
        System.exit(new LineApplication(words).run());
    }

    private LineApplication(String[] words) throws Exception {
        for (String word : words) {
            String[] parts = word.split("=", 2);
            task.put(parts[0], parts[1]);
        }
        partitions = Integer.parseInt(task.get("partitions"));
        byKey = task.get("by_key").equals("True");
        byte[] content = Files.readAllBytes(Path.of(task.get("file")));
        for (int begin = 0, at = 0; at < content.length; at++) {
            if (content[at] == '\n') {
                lines.add(new Line(lines.size(), begin, java.util.Arrays.copyOfRange(content, begin, at)));
                begin = at + 1;
            }
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private int run() throws Exception {
        say("stage asking");
        Map<Integer, Long> persisted = ask();
        say("stage asked");
        int known = firstUnknown(persisted);
        int first = (int) (known * Double.parseDouble(task.get("believed")));
        say("from " + first + " " + known + " " + lines.size());
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings());
        try {
            if (task.get("transactional_id").isEmpty()) {
                say("stage sending");
                send(producer, lines.subList(first, lines.size()));
                say("stage flushing");
                producer.flush();
                tellAcknowledged();
            } else {
                sendInTransactions(producer, first);
            }
            producer.close();
        } catch (KafkaException error) {
            System.err.println("gave up: " + error);
            return GAVE_UP;
        }
        say("stage ended");
        return 0;
    }

    private Map<Integer, Long> ask() throws InterruptedException {
        Properties settings = common();
        String group = "seqgate-name:" + task.get("name");
        while (true) {
            try (Admin admin = Admin.create(settings)) {
                Map<Integer, Long> known = new HashMap<>();
                Map<TopicPartition, OffsetAndMetadata> found =
                        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
                found.forEach((place, offset) -> {
                    if (place.topic().equals(task.get("topic")) && offset != null) {
                        known.put(place.partition(), offset.offset());
                    }
                });
                return known;
            } catch (ExecutionException error) {
                System.err.println("asking again: " + error.getCause());
            }
        }
    }

    private long sequence(Line line) {
        return task.get("unit").equals("position") ? line.position : line.number;
    }

    private int firstUnknown(Map<Integer, Long> persisted) {
        long lowest = Long.MAX_VALUE;
        for (int partition = 0; partition < partitions; partition++) {
            lowest = Math.min(lowest, persisted.getOrDefault(partition, -1L));
        }
        for (Line line : lines) {
            if (sequence(line) > (byKey ? lowest : persisted.getOrDefault(line.partition(partitions), -1L))) {
                return line.number;
            }
        }
        return lines.size();
    }

    private Properties common() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", task.get("bootstrap"));
        settings.put("request.timeout.ms", task.get("request_timeout_ms"));
        settings.put("retry.backoff.ms", "20");
        settings.put("retry.backoff.max.ms", "100");
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "100");
        return settings;
    }

    private Properties settings() {
        Properties settings = common();
        boolean idempotent = task.get("is_idempotent").equals("True");
        settings.put("enable.idempotence", Boolean.toString(idempotent));
        settings.put("max.in.flight.requests.per.connection", idempotent ? "5" : "1");
        settings.put("acks", "all");
        settings.put("compression.type", task.get("codec"));
        settings.put("delivery.timeout.ms", Integer.toString(Integer.MAX_VALUE));
        settings.put("max.block.ms", Integer.toString(Integer.MAX_VALUE));
        settings.put("batch.size", "1000");
        settings.put("linger.ms", "1");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        if (!task.get("transactional_id").isEmpty()) {
            settings.put("transactional.id", task.get("transactional_id"));
            settings.put("transaction.timeout.ms", task.get("transaction_timeout_ms"));
        }
        return settings;
    }

    private void sendInTransactions(KafkaProducer<byte[], byte[]> producer, int first) throws InterruptedException {
        int most = Integer.parseInt(task.get("transaction_lines"));
        producer.initTransactions();
        say("stage sending");
        for (int begin = first; begin < lines.size(); begin += most) {
            producer.beginTransaction();
            say("stage begun");
            int end = Math.min(begin + most, lines.size());
            int middle = Math.min(begin + most / 2, end);
            send(producer, lines.subList(begin, middle));
            producer.flush();
            say("stage inside");
            send(producer, lines.subList(middle, end));
            say("stage committing");
            producer.commitTransaction();
            say("stage committed");
            tellAcknowledged();
        }
    }

    private void send(KafkaProducer<byte[], byte[]> producer, List<Line> chosen) throws InterruptedException {
        for (Line line : chosen) {
            while (!window.tryAcquire(50, TimeUnit.MILLISECONDS)) {
                tellAcknowledged();
            }
            producer.send(toRecord(line), (metadata, error) -> {
                if (error == null) {
                    acknowledged.incrementAndGet();
                } else if (failure == null) {
                    failure = error;
                }
                window.release();
            });
            if (++sent % TELL_EVERY == 0) {
                say("sent " + sent);
                tellAcknowledged();
            }
        }
    }

    private ProducerRecord<byte[], byte[]> toRecord(Line line) {
        ProducerRecord<byte[], byte[]> record = byKey
                ? new ProducerRecord<>(task.get("topic"), line.key(), line.value)
                : new ProducerRecord<>(task.get("topic"), line.partition(partitions), null, line.value);
        record.headers().add("dedup.name", task.get("name").getBytes(StandardCharsets.UTF_8));
        String sequence = Long.toString(sequence(line));
        record.headers().add("dedup.sequence", sequence.getBytes(StandardCharsets.UTF_8));
        return record;
    }

    private void tellAcknowledged() {
        if (failure != null) {
            throw new KafkaException(failure);
        }
        int count = acknowledged.get();
        if (count > told) {
            told = count;
            say("acknowledged " + count);
        }
    }
}
