import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema;

/**
 * The orders that are paid, as Avro with the schema of a registry, from one topic into another, exactly once, up to the
 * topic's present end. Their keys, which are null, are left out.
 *
 * Arguments: those of a FlinkJob, the registry's address, the schema.
 */
public class FlinkOrders {
    public static void main(String[] arguments) throws Exception {
        String output = arguments[2];
        String registry = arguments[4];
        String subject = output + "-value";
        Schema schema = new Schema.Parser().parse(arguments[5]);
        // Of the tasks, which all do so at once, the registry would refuse some.
        new CachedSchemaRegistryClient(registry, 1).register(subject, new AvroSchema(schema));
        FlinkJob job = new FlinkJob(arguments);
        KafkaSource<GenericRecord> source = job.source(KafkaRecordDeserializationSchema.valueOnly(
                ConfluentRegistryAvroDeserializationSchema.forGeneric(schema, registry)));
        KafkaRecordSerializationSchema<GenericRecord> writing = KafkaRecordSerializationSchema.<GenericRecord>builder()
                .setTopic(output)
                .setValueSerializationSchema(
                        ConfluentRegistryAvroSerializationSchema.forGeneric(subject, schema, registry))
                .build();
        job.flink.fromSource(source, WatermarkStrategy.noWatermarks(), "orders")
                .filter(order -> (Boolean) order.get("paid"))
                .sinkTo(job.sink(writing, "none"));
        job.run();
    }
}
