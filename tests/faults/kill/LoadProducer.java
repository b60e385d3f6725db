import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Kafka's own idempotent producer under load; takes the arguments of producers.py and tells the same lines.
 *
 * <p>A batch that it gives up is told as failed; the library goes on by itself under the next producer epoch.
 */
public class LoadProducer {
    private static final int WINDOW = 200;
    private static final int TELL_EVERY = 50;

    private final ConcurrentLinkedQueue<String> lines = new ConcurrentLinkedQueue<>();
    private final Semaphore window = new Semaphore(WINDOW);
    private volatile boolean stopping;

    public static void main(String[] args) throws Exception {
        new LoadProducer()
                .run(args[0], args[1], args[2], Integer.parseInt(args[3]), args[4], Integer.parseInt(args[5]));
    }

    private static Properties settings(String bootstrap, String requestTimeoutMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.idempotence", "true");
        settings.put("acks", "all");
        settings.put("request.timeout.ms", requestTimeoutMs);
        settings.put("delivery.timeout.ms", Integer.toString(Integer.MAX_VALUE));
        settings.put("max.block.ms", Integer.toString(Integer.MAX_VALUE));
        settings.put("batch.size", "1000");
        settings.put("linger.ms", "1");
        settings.put("retry.backoff.ms", "20");
        settings.put("retry.backoff.max.ms", "100");
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "100");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        return settings;
    }

    private void run(
            String library, String bootstrap, String topic, int partitions, String requestTimeoutMs, int rate)
            throws InterruptedException {
        long startNs = System.nanoTime();
        Thread input = new Thread(this::awaitEndOfInput);
        input.setDaemon(true);
        input.start();
        Map<Integer, Integer> sent = new TreeMap<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings(bootstrap, requestTimeoutMs))) {
            for (int turn = 0; !stopping; turn++) {
                while (rate > 0 && !stopping && turn * 1_000_000_000L / rate > System.nanoTime() - startNs) {
                    tell();
                    Thread.sleep(5);
                }
                while (!window.tryAcquire(50, TimeUnit.MILLISECONDS)) {
                    tell();
                }
                int partition = turn % partitions;
                int number = sent.merge(partition, 1, Integer::sum) - 1;
                send(producer, library, topic, partition, number);
                if (turn % TELL_EVERY == 0) {
                    tell();
                }
            }
            producer.flush();
            producer.close(Duration.ofSeconds(10));
        }
        sent.forEach((partition, count) -> lines.add("S 0 " + partition + " " + count));
        lines.add("E");
        tell();
    }

    private void send(
            KafkaProducer<byte[], byte[]> producer, String library, String topic, int partition, int number) {
        byte[] value = (library + "/0/" + partition + "/" + number).getBytes(StandardCharsets.UTF_8);
        String name = " 0 " + partition + " " + number + " ";
        producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
            lines.add(error == null ? "A" + name + metadata.offset() : "F" + name + oneLine(error));
            window.release();
        });
    }

    private void awaitEndOfInput() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException broken) {
            System.err.println(broken);
        }
        stopping = true;
    }

    private void tell() {
        for (String line = lines.poll(); line != null; line = lines.poll()) {
            System.out.println(line);
        }
        System.out.flush();
    }

    private static String oneLine(Exception error) {
        return error.toString().replaceAll("\\s+", " ");
    }
}
