package orders;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class OrderSenderTest {
    static final List<String> ORDERS = IntStream.range(0, 30).mapToObj(number -> "order " + number).toList();
    static Broker broker;
    OrderSender sender;

    @BeforeAll
    static void start() throws IOException {
        broker = new Broker();
    }

    @AfterAll
    static void stop() {
        broker.close();
    }

    @BeforeEach
    void connect() {
        broker.reset();
        broker.createTopic("orders");
        sender = new OrderSender(broker.bootstrap());
    }

    @AfterEach
    void disconnect() {
        sender.close();
    }

    @Test
    void lostAnswersDoubleNoOrder() throws Exception {
        var struck = broker.order(Map.of("fault", "drop_answer", "api", "Produce", "times", 2));
        sender.send(List.of("one", "two", "three"));
        assertEquals(2, struck.getAsInt());
        broker.assertExactlyOnce("orders", List.of("one", "two", "three"));
    }

    @Test
    void ordersSurviveAKilledBroker() throws Exception {
        sender.send(ORDERS.subList(0, 10));
        broker.kill();
        sender.send(ORDERS.subList(10, 20));
        broker.kill();
        sender.send(ORDERS.subList(20, 30));
        broker.assertExactlyOnce("orders", ORDERS);
    }

    @Test
    void ordersSurviveRandomFaults() throws Exception {
        var struck =
                broker.order(Map.of("fault", "script", "seed", 1, "api", "Produce", "rate", 0.5, "times", 10));
        sender.send(ORDERS);
        assertNotEquals(0, struck.getAsInt());
        broker.assertExactlyOnce("orders", ORDERS);
    }
}
