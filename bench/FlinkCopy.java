import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.typeutils.TupleTypeInfo;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Key and value of every row from one topic into another, exactly once, up to the topic's present end.
 *
 * Arguments: those of a FlinkJob, codec.
 */
public class FlinkCopy {
    private static final TypeInformation<byte[]> BYTES = PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;

    static class Reading implements KafkaRecordDeserializationSchema<Tuple2<byte[], byte[]>> {
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

    record Writing(String topic) implements KafkaRecordSerializationSchema<Tuple2<byte[], byte[]>> {
        @Override
        public ProducerRecord<byte[], byte[]> serialize(Tuple2<byte[], byte[]> row, KafkaSinkContext context, Long time) {
            return new ProducerRecord<>(topic, null, time, row.f0.length == 0 ? null : row.f0, row.f1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        FlinkJob job = new FlinkJob(arguments);
        KafkaSource<Tuple2<byte[], byte[]>> source = job.source(new Reading());
        job.flink.fromSource(source, WatermarkStrategy.noWatermarks(), "input")
                .sinkTo(job.sink(new Writing(arguments[2]), arguments[4]));
        job.run();
    }
}
