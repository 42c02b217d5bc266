// Consume, produce, commit: rows and offsets in one transaction, again and again, by franz-go.
//
// Arguments: bootstrap servers, input, output, rows, rows of a transaction, codec. Prints a JSON list: of
// each transaction when it began and ended, in seconds, and its rows.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type transaction struct {
	Begin float64 `json:"begin"`
	End   float64 `json:"end"`
	Rows  int     `json:"rows"`
}

var codecs = map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression()}

func main() {
	servers, input, output := os.Args[1], os.Args[2], os.Args[3]
	rows, atOnce := number(os.Args[4]), number(os.Args[5])
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(servers),
		kgo.ConsumerGroup("go-loop-"+output),
		kgo.ConsumeTopics(input),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxPartitionBytes(8<<20),
		kgo.RequireStableFetchOffsets(),
		kgo.TransactionalID("go-loop-"+output),
		kgo.TransactionTimeout(10*time.Minute),
		kgo.DefaultProduceTopic(output),
		kgo.ProducerBatchMaxBytes(1_000_000),
		kgo.ProducerBatchCompression(codecs[os.Args[6]]),
		kgo.MaxBufferedRecords(1_000_000),
	)
	fail(err)
	done := []transaction{}
	for copied := 0; copied < rows; {
		one := copySome(session, min(atOnce, rows-copied))
		copied += one.Rows
		done = append(done, one)
	}
	text, err := json.Marshal(done)
	fail(err)
	fmt.Println(string(text))
	os.Stdin.Read(make([]byte, 1)) // a process that is gone has no processor time that could be looked up
}

func copySome(session *kgo.GroupTransactSession, wanted int) transaction {
	ctx := context.Background()
	one := transaction{Begin: now()}
	fail(session.Begin())
	var first sync.Once
	var failed error
	for one.Rows < wanted {
		fetched := session.PollRecords(ctx, min(20_000, wanted-one.Rows))
		fail(fetched.Err())
		fetched.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Key: record.Key, Value: record.Value}, func(_ *kgo.Record, err error) {
				if err != nil {
					first.Do(func() { failed = err })
				}
			})
			one.Rows++
		})
	}
	committed, err := session.End(ctx, kgo.TryCommit) // flushes first
	fail(err)
	fail(failed)
	if !committed {
		fail(fmt.Errorf("a transaction of %d rows was aborted", one.Rows))
	}
	one.End = now()
	return one
}

func now() float64 { return float64(time.Now().UnixMilli()) / 1e3 }

func number(text string) int {
	value, err := strconv.Atoi(text)
	fail(err)
	return value
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "the loop in Go:", err)
		os.Exit(1)
	}
}
