import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.security.token.delegation.DelegationToken;

/**
 * Does what it reads, one command with the file of its client's properties a line, and says "ok" with what it found,
 * or the class of the exception.
 */
public class SecuredClient {
    private static final String PACKAGE = "org.apache.kafka.common.serialization.";
    private static final String TOKEN_URL = "sasl.oauthbearer.token.endpoint.url";
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = lines.readLine()) != null) {
            String told;
            try {
                told = "ok " + perform(line.split(" "));
            } catch (ExecutionException failure) {
                told = nameOf(failure.getCause());
            } catch (RuntimeException failure) {
                told = nameOf(failure);
            }
            System.out.println(told.replace('\n', ' '));
            System.out.flush();
        }
    }

    /** A producer that met an error before the call says KafkaException, with the error as its cause. */
    private static String nameOf(Throwable failure) {
        boolean isOfAnEarlierCall = failure.getClass() == KafkaException.class && failure.getCause() != null;
        Throwable told = isOfAnEarlierCall ? failure.getCause() : failure;
        return told.getClass().getSimpleName() + " " + told.getMessage();
    }

    private static String perform(String[] words) throws Exception {
        Properties settings = settings(words[1]);
        switch (words[0]) {
            case "create" -> {
                try (Admin admin = Admin.create(settings)) {
                    admin.createTopics(List.of(new NewTopic(words[2], 1, (short) 1))).all().get();
                }
            }
            case "describe" -> {
                try (Admin admin = Admin.create(settings)) {
                    var found = admin.describeTopics(List.of(words[2])).allTopicNames().get();
                    return "" + found.get(words[2]).partitions().size();
                }
            }
            case "token" -> {
                try (Admin admin = Admin.create(settings)) {
                    DelegationToken token = admin.createDelegationToken().delegationToken().get();
                    return token.tokenInfo().tokenId() + " " + token.hmacAsBase64String();
                }
            }
            case "send" -> {
                if (!PRODUCERS.containsKey(words[1])) {
                    PRODUCERS.put(words[1], new KafkaProducer<>(settings));
                }
                PRODUCERS.get(words[1]).send(new ProducerRecord<>(words[2], words[3])).get();
            }
            case "close" -> {
                KafkaProducer<String, String> producer = PRODUCERS.remove(words[1]);
                if (producer != null) {
                    producer.close();
                }
            }
            case "transact" -> {
                settings.put("transactional.id", words[2]);
                try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
                    producer.initTransactions();
                    producer.beginTransaction();
                    producer.send(new ProducerRecord<>(words[3], words[4])).get();
                    producer.commitTransaction();
                }
            }
            case "read" -> {
                settings.put("group.id", words[3]);
                return read(settings, words[2], Integer.parseInt(words[4]));
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "";
    }

    private static String read(Properties settings, String topic, int count) {
        List<String> found = new ArrayList<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            while (found.size() < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + found);
                }
                for (ConsumerRecord<String, String> row : consumer.poll(Duration.ofMillis(500))) {
                    found.add(row.value());
                }
            }
            consumer.commitSync();
        }
        return String.join(" ", found);
    }

    private static Properties settings(String path) throws Exception {
        Properties settings = new Properties();
        try (FileReader reader = new FileReader(path)) {
            settings.load(reader);
        }
        if (settings.containsKey(TOKEN_URL)) {
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", settings.getProperty(TOKEN_URL));
        }
        settings.put("max.block.ms", "30000");
        settings.put("default.api.timeout.ms", "120000");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.serializer", PACKAGE + "StringSerializer");
        settings.put("value.serializer", PACKAGE + "StringSerializer");
        settings.put("key.deserializer", PACKAGE + "StringDeserializer");
        settings.put("value.deserializer", PACKAGE + "StringDeserializer");
        return settings;
    }
}
