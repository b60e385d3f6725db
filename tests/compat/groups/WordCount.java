import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts the words of an input topic's lines into an output topic, an update for each word read:
 * {@code java -cp 'libs/*' WordCount.java BOOTSTRAP INPUT OUTPUT APPLICATION NAME CHANGELOG GUARANTEE
 * PROTOCOL [INSTANCE]}.
 *
 * <p>APPLICATION is the group, NAME this instance's client id. With CHANGELOG "none" the counts live in
 * memory; else a changelog topic with that cleanup policy ("compact") keeps them too, so that they move with
 * their partition. GUARANTEE is the processing guarantee, PROTOCOL the group protocol, "classic" or "streams".
 * SIGTERM has it commit, leave the group and end; a static member, which INSTANCE names, leaves for a while.
 */
public final class WordCount {
    public static void main(String[] arguments) {
        var settings = settings(arguments[0], arguments[3], arguments[4], arguments[6], arguments[7]);
        var isStatic = arguments.length > 8;
        if (isStatic) {
            settings.put(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG, arguments[8]);
        }
        var streams = new KafkaStreams(topology(arguments[1], arguments[2], arguments[5]), settings);
        var leaving = CloseOptions.groupMembershipOperation(
                isStatic ? GroupMembershipOperation.REMAIN_IN_GROUP : GroupMembershipOperation.LEAVE_GROUP);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leaving)));
        streams.start();
    }

    private static Topology topology(String input, String output, String changelog) {
        Materialized<String, Long, KeyValueStore<Bytes, byte[]>> counts =
                Materialized.as(Stores.inMemoryKeyValueStore("counts"));
        counts = changelog.equals("none")
                ? counts.withLoggingDisabled()
                : counts.withLoggingEnabled(Map.of(TopicConfig.CLEANUP_POLICY_CONFIG, changelog));
        var builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
                .count(counts.withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
                .toStream()
                .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    private static Properties settings(
            String bootstrap, String application, String name, String guarantee, String protocol) {
        var settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.CLIENT_ID_CONFIG, name);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        if (guarantee.equals(StreamsConfig.EXACTLY_ONCE_V2)) {
            settings.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 3000);
        }
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 200);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, protocol);
        if (protocol.equals("classic")) { // the coordinator decides for streams groups
            settings.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 6000);
            settings.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 300);
        }
        return settings;
    }
}
