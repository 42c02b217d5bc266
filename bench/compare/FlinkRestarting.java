import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Key and value of every row from one topic into another, exactly once, for ever. It goes on from the newest checkpoint
 * in the folder, as Flink's high availability would.
 *
 * Arguments: bootstrap servers, input, output, parallelism, folder of the checkpoints, transaction timeout in ms.
 */
public class FlinkRestarting {
    private static final long CHECKPOINT_MS = 1_000;

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        String input = arguments[1];
        String output = arguments[2];
        Path checkpoints = Path.of(arguments[4]);
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        newest(checkpoints).ifPresent(path -> settings.setString("execution.state-recovery.path", path.toString()));
        StreamExecutionEnvironment flink =
                StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(arguments[3]), settings);
        flink.enableCheckpointing(CHECKPOINT_MS, CheckpointingMode.EXACTLY_ONCE);

        KafkaSource<Tuple2<byte[], byte[]>> source = KafkaSource.<Tuple2<byte[], byte[]>>builder()
                .setBootstrapServers(servers)
                .setTopics(input)
                .setGroupId("flink-" + output)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty("isolation.level", "read_committed")
                .setDeserializer(new FlinkCopy.Reading())
                .build();
        KafkaSink<Tuple2<byte[], byte[]>> sink = KafkaSink.<Tuple2<byte[], byte[]>>builder()
                .setBootstrapServers(servers)
                .setRecordSerializer(new FlinkCopy.Writing(output))
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("flink-" + output)
                .setProperty("transaction.timeout.ms", arguments[5])
                .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), input).sinkTo(sink);
        flink.execute(output);
    }

    /** The folder of the checkpoint that was completed last, of whichever run. */
    private static Optional<Path> newest(Path checkpoints) throws Exception {
        try (Stream<Path> files = Files.walk(checkpoints)) {
            return files.filter(file -> file.endsWith("_metadata"))
                    .max(Comparator.comparingLong(file -> file.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }
}
