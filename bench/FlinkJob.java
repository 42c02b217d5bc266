import java.util.Properties;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** A job from a topic, exactly once, by default up to the topic's present end. */
class FlinkJob {
    private static final long CHECKPOINT_MS = 1_000;
    private final String servers;
    private final String input;
    private final String output;
    final StreamExecutionEnvironment flink;

    /** Arguments: bootstrap servers, input, output, parallelism. */
    FlinkJob(String[] arguments) {
        servers = arguments[0];
        input = arguments[1];
        output = arguments[2];
        Configuration settings = new Configuration();
        settings.setString("restart-strategy.type", "none");
        flink = StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(arguments[3]), settings);
        flink.getConfig().enableObjectReuse();
        flink.enableCheckpointing(CHECKPOINT_MS, CheckpointingMode.EXACTLY_ONCE);
    }

    <T> KafkaSource<T> source(KafkaRecordDeserializationSchema<T> rows) {
        return endless(rows).setBounded(OffsetsInitializer.latest()).build();
    }

    /** Without an end. */
    <T> KafkaSourceBuilder<T> endless(KafkaRecordDeserializationSchema<T> rows) {
        return KafkaSource.<T>builder()
                .setBootstrapServers(servers)
                .setTopics(input)
                .setGroupId("flink-" + output)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty("isolation.level", "read_committed")
                .setProperty("max.poll.records", "20000")
                .setProperty("max.partition.fetch.bytes", "8388608")
                .setDeserializer(rows);
    }

    <T> KafkaSink<T> sink(KafkaRecordSerializationSchema<T> rows, String codec) {
        Properties producer = new Properties();
        producer.put("transaction.timeout.ms", "600000");
        producer.put("linger.ms", "5");
        producer.put("batch.size", "1000000");
        producer.put("compression.type", codec);
        producer.put("buffer.memory", "67108864");
        return KafkaSink.<T>builder()
                .setBootstrapServers(servers)
                .setRecordSerializer(rows)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("flink-" + output)
                .setKafkaProducerConfig(producer)
                .build();
    }

    void run() throws Exception {
        flink.execute(output);
        System.in.read(); // a process that is gone has no processor time that could be looked up
        System.exit(0);
    }
}
