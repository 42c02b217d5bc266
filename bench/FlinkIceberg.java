import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.util.Collector;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.flink.FlinkSchemaUtil;
import org.apache.iceberg.flink.TableLoader;
import org.apache.iceberg.flink.sink.IcebergSink;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.types.Types.NestedField;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * Every record of a topic into a new table of Iceberg, exactly once, until the program is killed.
 *
 * Arguments: those of a FlinkJob; the output is the table's folder.
 */
public class FlinkIceberg {
    private static final Schema COLUMNS = new Schema(List.of(
            NestedField.optional(1, "key", Types.BinaryType.get()),
            NestedField.optional(2, "value", Types.BinaryType.get()),
            NestedField.optional(3, "topic", Types.StringType.get()),
            NestedField.optional(4, "partition", Types.IntegerType.get()),
            NestedField.optional(5, "offset", Types.LongType.get()),
            NestedField.optional(6, "timestamp", Types.TimestampType.withZone())));

    static class Reading implements KafkaRecordDeserializationSchema<RowData> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> row, Collector<RowData> rows) {
            rows.collect(GenericRowData.of(row.key(), row.value(), StringData.fromString(row.topic()), row.partition(),
                    row.offset(), TimestampData.fromEpochMillis(row.timestamp())));
        }

        @Override
        public TypeInformation<RowData> getProducedType() {
            return InternalTypeInfo.of(FlinkSchemaUtil.convert(COLUMNS));
        }
    }

    public static void main(String[] arguments) throws Exception {
        new HadoopTables(new Configuration()).create(COLUMNS, PartitionSpec.unpartitioned(), Map.of(), arguments[2]);
        FlinkJob job = new FlinkJob(arguments);
        IcebergSink.forRowData(job.flink.fromSource(
                        job.endless(new Reading()).build(), WatermarkStrategy.noWatermarks(), "input"))
                .tableLoader(TableLoader.fromHadoopTable(arguments[2]))
                .append();
        job.run();
    }
}
