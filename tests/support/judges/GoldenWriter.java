import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaSerializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;

/**
 * Reads lines of kind, schema and row, with tabs between them, and prints each row as Apicurio's serializers write it in
 * Confluent's format, in hex. The argument is the address of the registry, which has the schemas.
 */
class GoldenWriter {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of(
            "apicurio.registry.url", arguments[0],
            "apicurio.registry.as-confluent", true,
            "apicurio.registry.headers.enabled", false,
            "apicurio.registry.find-latest", true,
            "apicurio.registry.serde.validation-enabled", false);
        try (var avro = new AvroKafkaSerializer<GenericRecord>(); var json = new JsonSchemaKafkaSerializer<JsonNode>()) {
            avro.configure(settings, false);
            json.configure(settings, false);
            var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] parts = line.split("\t", 3);
                String topic = "apicurio-" + parts[0];
                byte[] value = parts[0].equals("AVRO")
                    ? avro.serialize(topic, record(new Schema.Parser().parse(parts[1]), parts[2]))
                    : json.serialize(topic, new ObjectMapper().readTree(parts[2]));
                System.out.println(HexFormat.of().formatHex(value));
            }
        }
    }

    private static GenericRecord record(Schema schema, String row) throws Exception {
        return new GenericDatumReader<GenericRecord>(schema).read(null, DecoderFactory.get().jsonDecoder(schema, row));
    }
}
