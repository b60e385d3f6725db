package shop;

import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Adds the amounts of each customer's orders, exactly once: reads {@value #AMOUNTS} (key: customer, value: cents), and writes
 * the new total after each order to {@value #TOTALS}.
 *
 * <p>Arguments NAME=VALUE are settings of Kafka Streams, such as {@code bootstrap.servers=127.0.0.1:9092}.
 */
public final class OrderTotals {
    static final String AMOUNTS = "amounts";
    static final String TOTALS = "totals";
    private static final Optional<Integer> PARTITIONS = Optional.of(4);

    private OrderTotals() {}

    /** Runs until the process gets SIGTERM, or until Streams can't go on; then the exit status is 1. */
    public static void main(String[] arguments) throws InterruptedException, ExecutionException {
        var settings = settings(arguments);
        createTopics(settings);
        var stopped = new CountDownLatch(1);
        var streams = new KafkaStreams(topology(), settings);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("running");
            } else if (now == KafkaStreams.State.ERROR) {
                stopped.countDown();
            }
        });
        // close() commits what is processed.
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        stopped.await();
        System.exit(1);
    }

    static Topology topology() {
        var builder = new StreamsBuilder();
        builder.stream(AMOUNTS, Consumed.with(Serdes.String(), Serdes.String()))
                .mapValues(cents -> Long.parseLong(cents.strip()))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
                .reduce(Long::sum, Materialized.with(Serdes.String(), Serdes.Long()))
                .toStream()
                .mapValues(total -> Long.toString(total))
                .to(TOTALS, Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    private static Properties settings(String[] arguments) {
        var settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "127.0.0.1:9092");
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "order-totals");
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        // A total for each order. With a cache, a commit interval brings the newest total of each customer only.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        for (var argument : arguments) {
            var parts = argument.split("=", 2);
            if (parts.length < 2) {
                throw new IllegalArgumentException("arguments must have the form NAME=VALUE, not " + argument);
            }
            settings.put(parts[0], parts[1]);
        }
        return settings;
    }

    /** Streams creates only its internal topics; it stops if a topic that it reads does not exist. */
    private static void createTopics(Properties settings) throws InterruptedException, ExecutionException {
        try (var admin = Admin.create(settings)) {
            for (var topic : List.of(AMOUNTS, TOTALS)) {
                try {
                    admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, Optional.empty()))).all().get();
                } catch (ExecutionException refusal) {
                    if (!(refusal.getCause() instanceof TopicExistsException)) {
                        throw refusal;
                    }
                }
            }
        }
    }
}
