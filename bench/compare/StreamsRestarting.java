import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/**
 * Key and value of every row from one topic into another, by exactly_once_v2, for ever. It ends where all of its threads
 * have died.
 *
 * Arguments: bootstrap servers, input, output, threads, and the transaction timeout in ms where it is another one.
 */
public class StreamsRestarting {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", "streams-" + arguments[2]);
        settings.put("state.dir", System.getProperty("java.io.tmpdir"));
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.stream.threads", arguments[3]);
        settings.put("default.key.serde", Serdes.ByteArraySerde.class);
        settings.put("default.value.serde", Serdes.ByteArraySerde.class);
        settings.put("consumer.auto.offset.reset", "earliest");
        if (arguments.length > 4) {
            settings.put("producer.transaction.timeout.ms", arguments[4]);
        }
        StreamsBuilder copying = new StreamsBuilder();
        copying.<byte[], byte[]>stream(arguments[1]).to(arguments[2]);
        KafkaStreams streams = new KafkaStreams(copying.build(), settings);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
        });
        streams.start();
        Thread.currentThread().join();
    }
}
