package orders;

import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends orders to the topic "orders", each exactly once: Kafka's producer is idempotent by default. */
public final class OrderSender implements AutoCloseable {
    private final KafkaProducer<String, String> producer;

    /** Connects to the brokers at an address. */
    public OrderSender(String bootstrap) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    /** Returns when the broker has acknowledged all orders. */
    public void send(Iterable<String> orders) throws ExecutionException, InterruptedException {
        for (String order : orders) {
            producer.send(new ProducerRecord<>("orders", order)).get();
        }
    }

    /** Ends the connections. */
    @Override
    public void close() {
        producer.close();
    }
}
