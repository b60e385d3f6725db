import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/** A transactional producer that does what it reads, line by line, and says "ok" or the class of the exception. */
public class TransactionalClient {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("transactional.id", args[1]);
        settings.put("max.block.ms", "20000");
        settings.put("transaction.timeout.ms", args[2]);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = lines.readLine()) != null) {
            String told = "ok";
            try {
                perform(producer, line.split(" "));
            } catch (ExecutionException failure) {
                told = failure.getCause().getClass().getSimpleName();
            } catch (RuntimeException failure) {
                told = failure.getClass().getSimpleName();
            }
            System.out.println(told);
            System.out.flush();
        }
        producer.close(Duration.ZERO);
    }

    private static void perform(KafkaProducer<String, String> producer, String[] words) throws Exception {
        switch (words[0]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" ->
                producer.send(new ProducerRecord<>(words[1], Integer.parseInt(words[2]), null, words[3])).get();
            case "post" ->
                producer.send(new ProducerRecord<>(words[1], Integer.parseInt(words[2]), null, words[3]));
            case "hold" ->
                producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(words[2], 0), new OffsetAndMetadata(Long.parseLong(words[3]))),
                    new ConsumerGroupMetadata(words[1]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }
}
