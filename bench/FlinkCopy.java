import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.typeutils.TupleTypeInfo;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Key and value of every row from one topic into another, exactly once, up to the topic's present end.
 *
 * Arguments: bootstrap servers, input, output, parallelism, codec.
 */
public class FlinkCopy {
    private static final long CHECKPOINT_MS = 1_000;
    private static final TypeInformation<byte[]> BYTES = PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;

    private static class Reading implements KafkaRecordDeserializationSchema<Tuple2<byte[], byte[]>> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> row, Collector<Tuple2<byte[], byte[]>> rows) {
            // Of null keys there are no serializers; empty ones cost the same.
            rows.collect(Tuple2.of(row.key() == null ? new byte[0] : row.key(), row.value()));
        }

        @Override
        public TypeInformation<Tuple2<byte[], byte[]>> getProducedType() {
            return new TupleTypeInfo<>(BYTES, BYTES);
        }
    }

    private record Writing(String topic) implements KafkaRecordSerializationSchema<Tuple2<byte[], byte[]>> {
        @Override
        public ProducerRecord<byte[], byte[]> serialize(Tuple2<byte[], byte[]> row, KafkaSinkContext context, Long time) {
            return new ProducerRecord<>(topic, null, time, row.f0.length == 0 ? null : row.f0, row.f1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        String input = arguments[1];
        String output = arguments[2];
        Configuration settings = new Configuration();
        settings.setString("restart-strategy.type", "none");
        StreamExecutionEnvironment flink =
                StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(arguments[3]), settings);
        flink.getConfig().enableObjectReuse();
        flink.enableCheckpointing(CHECKPOINT_MS, CheckpointingMode.EXACTLY_ONCE);

        KafkaSource<Tuple2<byte[], byte[]>> source = KafkaSource.<Tuple2<byte[], byte[]>>builder()
                .setBootstrapServers(servers)
                .setTopics(input)
                .setGroupId("flink-" + output)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setProperty("isolation.level", "read_committed")
                .setProperty("max.poll.records", "20000")
                .setProperty("max.partition.fetch.bytes", "8388608")
                .setDeserializer(new Reading())
                .build();
        Properties producer = new Properties();
        producer.put("transaction.timeout.ms", "600000");
        producer.put("linger.ms", "5");
        producer.put("batch.size", "1000000");
        producer.put("compression.type", arguments[4]);
        producer.put("buffer.memory", "67108864");
        KafkaSink<Tuple2<byte[], byte[]>> sink = KafkaSink.<Tuple2<byte[], byte[]>>builder()
                .setBootstrapServers(servers)
                .setRecordSerializer(new Writing(output))
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("flink-" + output)
                .setKafkaProducerConfig(producer)
                .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), input).sinkTo(sink);
        flink.execute(output);
        System.in.read(); // a process that is gone has no processor time that could be looked up
        System.exit(0);
    }
}
