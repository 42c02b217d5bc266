import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/**
 * Key and value of every row from one topic into another, by exactly_once_v2, for ever.
 *
 * Arguments: bootstrap servers, input, output, threads, codec.
 */
public class StreamsCopy {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", "streams-" + arguments[2]);
        settings.put("state.dir", System.getProperty("java.io.tmpdir"));
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.stream.threads", arguments[3]);
        settings.put("commit.interval.ms", "1000");
        settings.put("default.key.serde", Serdes.ByteArraySerde.class);
        settings.put("default.value.serde", Serdes.ByteArraySerde.class);
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.max.poll.records", "20000");
        settings.put("consumer.max.partition.fetch.bytes", "8388608");
        settings.put("producer.linger.ms", "5");
        settings.put("producer.batch.size", "1000000");
        settings.put("producer.buffer.memory", "67108864");
        settings.put("producer.compression.type", arguments[4]);
        StreamsBuilder copying = new StreamsBuilder();
        copying.<byte[], byte[]>stream(arguments[1]).to(arguments[2]);
        KafkaStreams streams = new KafkaStreams(copying.build(), settings);
        streams.start();
        System.in.read(); // until the benchmark has seen all rows
        Runtime.getRuntime().halt(0);
    }
}
