package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/net/http2/hpack"
)

const (
	frameData         = 0x0
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameSettings     = 0x4
	framePing         = 0x6
	frameGoAway       = 0x7
	frameWindowUpdate = 0x8
	frameContinuation = 0x9

	flagAck        = 0x1
	flagEndStream  = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	settingPush          = 0x2
	settingInitialWindow = 0x4

	windowMax     = 1<<31 - 1
	windowDefault = 65535
	frameBytesMax = 16 * 1024
	bufferBytes   = 64 * 1024

	statusReset   = "reset"
	statusMissing = "missing"
)

// connection is one HTTP/2 connection and the calls it keeps in flight. One goroutine owns it: it writes a new call
// where it read the end of another, so that nothing is locked, and it flushes only when it has read all there was.
type connection struct {
	load   *load
	number int
	socket net.Conn
	reader *bufio.Reader
	writer *bufio.Writer

	encoded bytes.Buffer
	encoder *hpack.Encoder
	decoder *hpack.Decoder
	headers []byte // the header block once all its fields are indexed
	body    []byte // own copy: the key is written into it

	window    int64 // what the server still lets us send on this connection
	waiting   int   // calls that wait for it
	callCount uint32
	openCount int
	started   []int64           // by call number, nanoseconds since the load began
	statuses  map[uint32]string // of open streams that have told theirs
	stream    uint32            // whose headers are being decoded

	latencies []int64 // of calls that ended within the measured time, nanoseconds
	ended     map[string]int
	payload   []byte
}

func connect(load *load, number int) (*connection, error) {
	socket, err := net.Dial("tcp", load.target)
	if err != nil {
		return nil, err
	}
	c := &connection{
		load: load, number: number, socket: socket, window: windowDefault,
		reader: bufio.NewReaderSize(socket, bufferBytes), writer: bufio.NewWriterSize(socket, bufferBytes),
		body: bytes.Clone(load.body), statuses: map[uint32]string{}, ended: map[string]int{},
		started: make([]int64, 0, 1<<16), latencies: make([]int64, 0, 1<<16), payload: make([]byte, 0, bufferBytes),
	}
	c.encoder = hpack.NewEncoder(&c.encoded)
	c.decoder = hpack.NewDecoder(4096, c.field)
	if err := c.greet(); err != nil {
		socket.Close()
		return nil, fmt.Errorf("%s does not speak HTTP/2: %w", load.target, err)
	}
	return c, nil
}

// greet ends once the server has answered with its settings: then a process has accepted this connection.
func (c *connection) greet() error {
	c.socket.SetDeadline(time.Now().Add(10 * time.Second))
	c.writer.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	settings := binary.BigEndian.AppendUint16(nil, settingPush)
	settings = binary.BigEndian.AppendUint32(settings, 0)
	settings = binary.BigEndian.AppendUint16(settings, settingInitialWindow)
	settings = binary.BigEndian.AppendUint32(settings, windowMax)
	c.write(frameSettings, 0, 0, settings)
	c.write(frameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, windowMax-windowDefault))
	if err := c.writer.Flush(); err != nil {
		return err
	}
	for {
		kind, flags, _, err := c.next()
		if err != nil {
			return err
		}
		if kind == frameSettings && flags&flagAck == 0 {
			c.socket.SetDeadline(time.Time{})
			return c.writer.Flush()
		}
	}
}

// run keeps `depth` calls in flight until the time is over, then waits for those still open.
func (c *connection) run(depth int) error {
	for range depth {
		c.call()
	}
	for c.openCount > 0 || c.waiting > 0 {
		if c.reader.Buffered() == 0 {
			if err := c.writer.Flush(); err != nil {
				return err
			}
		}
		if _, _, _, err := c.next(); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) call() {
	length := int64(len(c.body))
	if c.window < length {
		c.waiting++
		return
	}
	c.window -= length
	stream := 2*c.callCount + 1
	c.started = append(c.started, c.load.now())
	c.load.writeKeys(c.body, c.number, c.callCount)
	c.callCount++
	c.openCount++
	c.write(frameHeaders, flagEndHeaders, stream, c.headerBlock())
	body := c.body
	for len(body) > frameBytesMax {
		c.write(frameData, 0, stream, body[:frameBytesMax])
		body = body[frameBytesMax:]
	}
	c.write(frameData, flagEndStream, stream, body)
}

// headerBlock is the same for all calls but the first, which puts the fields into the server's table.
func (c *connection) headerBlock() []byte {
	if c.headers != nil {
		return c.headers
	}
	c.encoded.Reset()
	for _, field := range c.load.fields {
		c.encoder.WriteField(field)
	}
	if c.callCount > 1 {
		c.headers = bytes.Clone(c.encoded.Bytes())
	}
	return c.encoded.Bytes()
}

func (c *connection) write(kind, flags byte, stream uint32, payload []byte) {
	var head [9]byte
	head[0], head[1], head[2] = byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload))
	head[3], head[4] = kind, flags
	binary.BigEndian.PutUint32(head[5:], stream)
	c.writer.Write(head[:])
	c.writer.Write(payload)
}

// next reads one frame and does what it asks for.
func (c *connection) next() (kind, flags byte, stream uint32, err error) {
	var head [9]byte
	if _, err = io.ReadFull(c.reader, head[:]); err != nil {
		return
	}
	length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	kind, flags, stream = head[3], head[4], binary.BigEndian.Uint32(head[5:])&windowMax
	if cap(c.payload) < length {
		c.payload = make([]byte, 0, length)
	}
	payload := c.payload[:length]
	if _, err = io.ReadFull(c.reader, payload); err == nil {
		err = c.frame(kind, flags, stream, payload)
	}
	return
}

func (c *connection) frame(kind, flags byte, stream uint32, payload []byte) error {
	switch kind {
	case frameHeaders:
		if err := c.readHeaders(flags, stream, payload); err != nil {
			return err
		}
		c.endIf(flags, stream)
	case frameData:
		c.endIf(flags, stream)
	case frameReset:
		if _, told := c.statuses[stream]; !told {
			c.statuses[stream] = statusReset
		}
		c.endIf(flagEndStream, stream)
	case frameSettings:
		if flags&flagAck == 0 {
			c.write(frameSettings, flagAck, 0, nil)
		}
	case framePing:
		if flags&flagAck == 0 {
			c.write(framePing, flagAck, 0, payload)
		}
	case frameWindowUpdate:
		if stream == 0 {
			c.widen(int64(binary.BigEndian.Uint32(payload) & windowMax))
		}
	case frameGoAway:
		return fmt.Errorf("the server closes the connection: %q", payload[8:])
	case frameContinuation:
		return errors.New("header blocks of more than one frame are not supported")
	}
	return nil
}

func (c *connection) widen(bytes int64) {
	c.window += bytes
	for count := c.waiting; count > 0; count-- {
		c.waiting--
		c.call()
	}
}

func (c *connection) readHeaders(flags byte, stream uint32, payload []byte) error {
	if flags&flagEndHeaders == 0 || flags&flagPadded != 0 {
		return errors.New("padded or split header blocks are not supported")
	}
	if flags&flagPriority != 0 {
		payload = payload[5:]
	}
	c.stream = stream
	if _, err := c.decoder.Write(payload); err != nil {
		return err
	}
	return c.decoder.Close()
}

func (c *connection) field(field hpack.HeaderField) {
	if field.Name == "grpc-status" {
		c.statuses[c.stream] = field.Value
	}
}

func (c *connection) endIf(flags byte, stream uint32) {
	if flags&flagEndStream == 0 {
		return
	}
	status, told := c.statuses[stream]
	delete(c.statuses, stream)
	if !told {
		status = statusMissing
	}
	c.ended[status]++
	c.openCount--
	now := c.load.now()
	if now >= c.load.warmup && now < c.load.end {
		c.latencies = append(c.latencies, now-c.started[(stream-1)/2])
	}
	if now < c.load.end {
		c.call()
	}
}
