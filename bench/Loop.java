import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Consume, produce, commit: rows and offsets in one transaction, again and again, in some threads.
 *
 * Arguments: bootstrap servers, input, output, rows of each thread, rows of a transaction, threads, codec. Each copies
 * the partition of its number. Prints a JSON list: of the n-th transactions of all threads together, when the first of
 * them began and the last one ended, in seconds, and their rows.
 */
public class Loop {
    private record Transaction(long begin, long end, int rows) {}

    public static void main(String[] arguments) throws Exception {
        int rows = Integer.parseInt(arguments[3]);
        int atOnce = Integer.parseInt(arguments[4]);
        int threads = Integer.parseInt(arguments[5]);
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<List<Transaction>>> all = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            TopicPartition from = new TopicPartition(arguments[1], thread);
            all.add(pool.submit(() -> copy(arguments[0], from, arguments[2], rows, atOnce, arguments[6])));
        }
        List<List<Transaction>> done = new ArrayList<>();
        for (Future<List<Transaction>> one : all) done.add(one.get());
        List<String> lines = new ArrayList<>();
        for (int n = 0; n < done.get(0).size(); n++) {
            int nth = n;
            double begin = done.stream().mapToLong(list -> list.get(nth).begin()).min().getAsLong() / 1e3;
            double end = done.stream().mapToLong(list -> list.get(nth).end()).max().getAsLong() / 1e3;
            int sum = done.stream().mapToInt(list -> list.get(nth).rows()).sum();
            lines.add(String.format("{\"begin\": %.3f, \"end\": %.3f, \"rows\": %d}", begin, end, sum));
        }
        System.out.println("[" + String.join(", ", lines) + "]");
        System.in.read(); // a process that is gone has no processor time that could be looked up
        System.exit(0);
    }

    private static List<Transaction> copy(
            String servers, TopicPartition from, String output, int rows, int atOnce, String codec) {
        List<Transaction> done = new ArrayList<>();
        String name = "java-loop-" + output + "-" + from.partition();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(servers, name);
                KafkaProducer<byte[], byte[]> producer = producer(servers, name, codec)) {
            producer.initTransactions();
            consumer.assign(List.of(from));
            consumer.seek(from, 0);
            ConsumerRecords<byte[], byte[]> fetched = ConsumerRecords.empty();
            int at = 0;
            for (int copied = 0; copied < rows; ) {
                long begin = System.currentTimeMillis();
                producer.beginTransaction();
                int now = Math.min(atOnce, rows - copied);
                long next = 0;
                for (int row = 0; row < now; row++) {
                    while (at == fetched.count()) {
                        fetched = consumer.poll(Duration.ofSeconds(60));
                        at = 0;
                    }
                    ConsumerRecord<byte[], byte[]> record = fetched.records(from).get(at++);
                    next = record.offset() + 1;
                    producer.send(new ProducerRecord<>(output, record.key(), record.value()));
                }
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                offsets.put(from, new OffsetAndMetadata(next));
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction(); // raises what a send has failed with
                copied += now;
                done.add(new Transaction(begin, System.currentTimeMillis(), now));
            }
        }
        return done;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String servers, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "20000");
        settings.put("max.partition.fetch.bytes", String.valueOf(8 << 20));
        settings.put("fetch.min.bytes", "100000");
        settings.put("fetch.max.wait.ms", "20");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static KafkaProducer<byte[], byte[]> producer(String servers, String id, String codec) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", id);
        settings.put("linger.ms", "5");
        settings.put("batch.size", "1000000");
        settings.put("compression.type", codec);
        settings.put("buffer.memory", String.valueOf(64 << 20));
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }
}
