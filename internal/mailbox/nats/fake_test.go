package nats

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeServer is a server in memory that speaks as much of NATS and JetStream as
// this package uses. It can lose requests, or the answers to them. The module
// of interoperability tests compares its behaviour with real servers.
type fakeServer struct {
	token string // that clients must show; empty for none

	mu sync.Mutex

	// guarded by mu
	streams   map[string]*fakeStream
	consumers map[string]*fakeConsumer
	clients   map[*fakeClient]bool
	refusing  bool                         // connections are refused
	intercept func(subject string) verdict // with a request; nil for nothing
	requests  map[string]int               // by the first words of the subject
	bytesSent int                          // that clients were sent
	paused    bool                         // consumers get nothing until it is cleared
}

// verdict is how a request is handled.
type verdict struct {
	dropRequest  bool // it is never received
	dropResponse bool // it is carried out, without a response
	code         int  // it is refused with this error of JetStream
}

type fakeStream struct {
	config json.RawMessage
	parsed struct {
		Subjects []string `json:"subjects"`
		Most     int      `json:"max_msgs_per_subject"`
	}
	messages []*fakeMessage // in the order of their sequences
	last     uint64
	msgIDs   map[string]uint64 // the Nats-Msg-Id of all that was stored
}

type fakeMessage struct {
	seq     uint64
	subject string
	header  textproto.MIMEHeader
	body    []byte
	at      time.Time
	until   time.Time // zero for ever
}

type fakeConsumer struct {
	stream, name string
	next, sent   uint64
	skip         bool // the next message is left out
	pull         *fakePull
}

type fakePull struct {
	client *fakeClient
	inbox  string
	left   int
	timers []*time.Timer
}

type fakeClient struct {
	server *fakeServer
	conn   net.Conn
	out    chan []byte
	done   chan struct{}

	// guarded by the fake's mu
	subs map[string]string // subject by number
}

func newFakeServer() *fakeServer {
	return &fakeServer{streams: map[string]*fakeStream{}, consumers: map[string]*fakeConsumer{}, clients: map[*fakeClient]bool{}, requests: map[string]int{}}
}

// Dial implements nats.CustomDialer.
func (f *fakeServer) Dial(string, string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refusing {
		return nil, io.ErrUnexpectedEOF
	}
	ours, theirs := net.Pipe()
	c := &fakeClient{server: f, conn: ours, out: make(chan []byte, 1<<16), done: make(chan struct{}), subs: map[string]string{}}
	f.clients[c] = true
	go c.write()
	go c.serve()
	return theirs, nil
}

// disconnect closes all connections; with away, it also refuses new ones.
func (f *fakeServer) disconnect(away bool) {
	f.mu.Lock()
	f.refusing = away
	clients := slices.Collect(maps.Keys(f.clients))
	f.mu.Unlock()
	for _, c := range clients {
		_ = c.conn.Close()
	}
}

// setPaused holds back what consumers are to get, or delivers it.
func (f *fakeServer) setPaused(held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = held
	for _, c := range f.consumers {
		f.deliverPending(c)
	}
}

func (f *fakeServer) setIntercept(meddle func(subject string) verdict) {
	f.mu.Lock()
	f.intercept = meddle
	f.mu.Unlock()
}

func (c *fakeClient) write() {
	for {
		select {
		case b := <-c.out:
			if _, err := c.conn.Write(b); err != nil {
				return
			}
		case <-c.done:
			return
		}
	}
}

func (c *fakeClient) serve() {
	defer c.close()
	c.printf(`INFO {"server_id":"F","server_name":"fake","version":"2.15.2","proto":1,"headers":true,"jetstream":true,"max_payload":1048576,"auth_required":%v}`+"\r\n", c.server.token != "")
	in, refused := bufio.NewReader(c.conn), false
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		switch strings.ToUpper(words[0]) {
		case "CONNECT":
			refused = c.server.token != "" && !strings.Contains(line, `"auth_token":"`+c.server.token+`"`)
		case "PING":
			if refused {
				_, _ = c.conn.Write([]byte("-ERR 'Authorization Violation'\r\n"))
				return
			}
			c.printf("PONG\r\n")
		case "SUB":
			c.server.mu.Lock()
			c.subs[words[len(words)-1]] = words[1]
			c.server.mu.Unlock()
		case "UNSUB":
			c.server.mu.Lock()
			if len(words) == 2 {
				delete(c.subs, words[1])
			}
			c.server.mu.Unlock()
		case "PUB", "HPUB":
			if c.readPublish(in, words) != nil {
				return
			}
		}
	}
}

func (c *fakeClient) close() {
	_ = c.conn.Close()
	close(c.done)
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	delete(c.server.clients, c)
	for _, consumer := range c.server.consumers {
		if consumer.pull != nil && consumer.pull.client == c {
			consumer.endPull()
		}
	}
}

func (c *fakeClient) printf(format string, args ...any) {
	select {
	case c.out <- fmt.Appendf(nil, format, args...):
	default:
		panic("a client of the fake does not read")
	}
}

// readPublish reads a message that a client sends.
func (c *fakeClient) readPublish(in *bufio.Reader, words []string) error {
	total, _ := strconv.Atoi(words[len(words)-1])
	payload := make([]byte, total+2)
	if _, err := io.ReadFull(in, payload); err != nil {
		return err
	}
	payload = payload[:total]
	header, counts := textproto.MIMEHeader{}, 1
	if strings.EqualFold(words[0], "HPUB") {
		counts = 2
		n, _ := strconv.Atoi(words[len(words)-2])
		_, lines, _ := bytes.Cut(payload[:n], []byte("\r\n"))
		header, _ = textproto.NewReader(bufio.NewReader(bytes.NewReader(lines))).ReadMIMEHeader()
		payload = payload[n:]
	}
	reply := ""
	if len(words) == 3+counts {
		reply = words[2]
	}
	c.server.request(c, words[1], reply, header, payload)
	return nil
}

// deliver sends a message to the subscribers of an inbox. The caller holds mu.
func (f *fakeServer) deliver(inbox, subject, reply, header string, body []byte) {
	for c := range f.clients {
		for number, pattern := range c.subs {
			if pattern != inbox && !(strings.HasSuffix(pattern, ".*") && strings.HasPrefix(inbox, strings.TrimSuffix(pattern, "*"))) {
				continue
			}
			if reply != "" {
				reply += " "
			}
			f.bytesSent += len(header) + len(body)
			if header == "" {
				c.printf("MSG %s %s %s%d\r\n%s\r\n", subject, number, reply, len(body), body)
				return
			}
			c.printf("HMSG %s %s %s%d %d\r\n%s%s\r\n", subject, number, reply, len(header), len(header)+len(body), header, body)
			return
		}
	}
}

func (f *fakeServer) request(c *fakeClient, subject, reply string, header textproto.MIMEHeader, body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var v verdict
	if f.intercept != nil {
		v = f.intercept(subject)
	}
	words := strings.Split(subject, ".")
	f.requests[strings.Join(words[:min(4, len(words))], ".")]++
	if v.dropRequest {
		return
	}
	var answer any
	switch what := strings.TrimPrefix(subject, "$JS.API."); {
	case v.code > 0:
		answer = apiError(v.code)
	case what == subject:
		answer = f.store(subject, header, body)
	case strings.HasPrefix(what, "STREAM.INFO."):
		answer = f.info(words[len(words)-1])
	case strings.HasPrefix(what, "STREAM.CREATE."), strings.HasPrefix(what, "STREAM.UPDATE."):
		answer = f.create(words[len(words)-1], words[3] == "CREATE", body)
	case strings.HasPrefix(what, "STREAM.PURGE."):
		answer = f.purge(words[len(words)-1], body)
	case strings.HasPrefix(what, "STREAM.MSG.GET."):
		answer = f.get(words[len(words)-1], body)
	case strings.HasPrefix(what, "CONSUMER.CREATE."):
		answer = f.consume(words[4], words[5], body)
	case strings.HasPrefix(what, "CONSUMER.MSG.NEXT."):
		f.pull(c, words[5], words[6], reply, body)
		return
	case strings.HasPrefix(what, "CONSUMER.DELETE."):
		answer = map[string]any{"success": true}
	case strings.HasPrefix(what, "DIRECT.GET."):
		f.directGet(words[4], reply, body)
		return
	}
	if v.dropResponse || reply == "" {
		return
	}
	text, _ := json.Marshal(answer)
	f.deliver(reply, reply, "", "", text)
}

func apiError(code int) any {
	return map[string]any{"error": map[string]any{"code": 400, "err_code": code, "description": fmt.Sprint("error ", code)}}
}

func (f *fakeServer) info(name string) any {
	s := f.streams[name]
	if s == nil {
		return apiError(10059)
	}
	s.expire()
	subjects, size := map[string]bool{}, 0
	for _, m := range s.messages {
		subjects[m.subject] = true
		size += len(m.body) + 100
	}
	first := s.last + 1
	if len(s.messages) > 0 {
		first = s.messages[0].seq
	}
	return map[string]any{"config": s.config, "created": time.Now(), "state": map[string]any{
		"messages": len(s.messages), "bytes": size, "first_seq": first, "last_seq": s.last, "num_subjects": len(subjects),
	}}
}

func (f *fakeServer) create(name string, fresh bool, config []byte) any {
	s := f.streams[name]
	if s == nil && !fresh {
		return apiError(10059)
	}
	if s == nil {
		s = &fakeStream{msgIDs: map[string]uint64{}}
		f.streams[name] = s
	}
	s.config = config
	if err := json.Unmarshal(config, &s.parsed); err != nil {
		return apiError(10003)
	}
	return f.info(name)
}

func (s *fakeStream) expire() {
	now := time.Now()
	s.messages = slices.DeleteFunc(s.messages, func(m *fakeMessage) bool { return !m.until.IsZero() && !m.until.After(now) })
}

// matches reports whether a subject matches a pattern, in which * is any one
// token.
func matches(pattern, subject string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == subject
	}
	words, of := strings.Split(subject, "."), strings.Split(pattern, ".")
	return slices.EqualFunc(words, of, func(word, of string) bool { return of == "*" || of == word })
}

// lastFor finds the last message of a subject.
func (s *fakeStream) lastFor(subject string) *fakeMessage {
	for _, m := range slices.Backward(s.messages) {
		if matches(subject, m.subject) {
			return m
		}
	}
	return nil
}

// store stores a message, as JetStream does: it first deduplicates by
// Nats-Msg-Id, and then checks the expected sequence.
func (f *fakeServer) store(subject string, header textproto.MIMEHeader, body []byte) any {
	for name, s := range f.streams {
		if !slices.ContainsFunc(s.parsed.Subjects, func(of string) bool { return matches(of, subject) }) {
			continue
		}
		s.expire()
		mark := header.Get("Nats-Msg-Id")
		if seq, known := s.msgIDs[mark]; known && mark != "" {
			return map[string]any{"stream": name, "seq": seq, "duplicate": true}
		}
		if want := header.Get("Nats-Expected-Last-Subject-Sequence"); want != "" {
			is := uint64(0)
			if m := s.lastFor(subject); m != nil {
				is = m.seq
			}
			if want != fmt.Sprint(is) {
				return apiError(10071)
			}
		}
		s.last++
		m := &fakeMessage{seq: s.last, subject: subject, header: header, body: body, at: time.Now()}
		if life := header.Get("Nats-Ttl"); life != "" {
			d, _ := time.ParseDuration(life)
			m.until = m.at.Add(d)
		}
		s.messages = append(s.messages, m)
		s.msgIDs[mark] = m.seq
		of := func(m *fakeMessage) bool { return m.subject == subject }
		if n := countOf(s.messages, of); n > s.parsed.Most {
			oldest := slices.IndexFunc(s.messages, of)
			s.messages = slices.Delete(s.messages, oldest, oldest+1)
		}
		for _, c := range f.consumers {
			if c.stream == name {
				f.deliverPending(c)
			}
		}
		return map[string]any{"stream": name, "seq": m.seq}
	}
	return apiError(10059)
}

func countOf(list []*fakeMessage, of func(*fakeMessage) bool) (n int) {
	for _, m := range list {
		if of(m) {
			n++
		}
	}
	return n
}

func (m *fakeMessage) headerText(more string) string {
	text := "NATS/1.0\r\n"
	for name, values := range m.header {
		if !strings.HasPrefix(name, "Nats-") {
			text += name + ": " + values[0] + "\r\n"
		}
	}
	return text + more + "\r\n"
}

func (f *fakeServer) get(name string, body []byte) any {
	var want struct {
		Last string `json:"last_by_subj"`
	}
	_ = json.Unmarshal(body, &want)
	s := f.streams[name]
	if s == nil {
		return apiError(10059)
	}
	s.expire()
	m := s.lastFor(want.Last)
	if m == nil {
		return apiError(10037)
	}
	return map[string]any{"message": map[string]any{"subject": m.subject, "seq": m.seq, "time": m.at,
		"hdrs": base64.StdEncoding.EncodeToString([]byte(m.headerText(""))), "data": base64.StdEncoding.EncodeToString(m.body)}}
}

// directGet answers with messages from a sequence on, or with the last one of a
// subject.
func (f *fakeServer) directGet(name, inbox string, body []byte) {
	var want struct {
		From    uint64 `json:"seq"`
		Subject string `json:"next_by_subj"`
		Last    string `json:"last_by_subj"`
		Batch   int    `json:"batch"`
		Bytes   int    `json:"max_bytes"`
	}
	_ = json.Unmarshal(body, &want)
	s := f.streams[name]
	if s == nil {
		f.deliver(inbox, inbox, "", "NATS/1.0 503\r\n\r\n", nil)
		return
	}
	show := func(m *fakeMessage, left int) {
		f.deliver(inbox, inbox, "", m.headerText(fmt.Sprintf("Nats-Subject: %s\r\nNats-Sequence: %d\r\nNats-Num-Pending: %d\r\n", m.subject, m.seq, left)), m.body)
	}
	var found []*fakeMessage
	for _, m := range s.messages {
		if m.seq >= want.From && matches(want.Subject, m.subject) {
			found = append(found, m)
		}
	}
	if last := s.lastFor(want.Last); want.Last != "" && last != nil {
		show(last, 0)
		return
	}
	if len(found) == 0 {
		f.deliver(inbox, inbox, "", "NATS/1.0 404 Message Not Found\r\n\r\n", nil)
		return
	}
	sent := 0
	for i, m := range found[:min(len(found), want.Batch)] {
		show(m, len(found)-1-i)
		if sent += len(m.body); want.Bytes > 0 && sent >= want.Bytes {
			break
		}
	}
	f.deliver(inbox, inbox, "", "NATS/1.0 204 EOB\r\n\r\n", nil)
}

// purge removes the oldest messages of a subject, beyond those to keep.
func (f *fakeServer) purge(name string, body []byte) any {
	var want struct {
		Subject string `json:"filter"`
		Keep    int    `json:"keep"`
	}
	_ = json.Unmarshal(body, &want)
	s := f.streams[name]
	if s == nil {
		return apiError(10059)
	}
	of := func(m *fakeMessage) bool { return matches(want.Subject, m.subject) }
	beyond, purged := countOf(s.messages, of)-want.Keep, 0
	s.messages = slices.DeleteFunc(s.messages, func(m *fakeMessage) bool {
		if purged >= beyond || !of(m) {
			return false
		}
		purged++
		return true
	})
	return map[string]any{"success": true, "purged": purged}
}

func (f *fakeServer) consume(stream, name string, body []byte) any {
	var want struct {
		Config map[string]any `json:"config"`
	}
	_ = json.Unmarshal(body, &want)
	if f.streams[stream] == nil {
		return apiError(10059)
	}
	c := &fakeConsumer{stream: stream, name: name, next: 1}
	if from, set := want.Config["opt_start_seq"].(float64); set {
		c.next = uint64(from)
	}
	f.consumers[stream+"."+name] = c
	return map[string]any{"stream_name": stream, "name": name, "created": time.Now(), "config": want.Config}
}

// pull delivers a consumer's messages to an inbox for a while.
func (f *fakeServer) pull(client *fakeClient, stream, name, inbox string, body []byte) {
	var want struct {
		Batch   int           `json:"batch"`
		Expires time.Duration `json:"expires"`
		Beat    time.Duration `json:"idle_heartbeat"`
	}
	_ = json.Unmarshal(body, &want)
	c := f.consumers[stream+"."+name]
	if c == nil {
		return
	}
	c.endPull()
	pull := &fakePull{client: client, inbox: inbox, left: want.Batch}
	c.pull = pull
	pull.timers = append(pull.timers, time.AfterFunc(want.Expires, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if c.pull == pull {
			c.endPull()
			f.deliver(inbox, inbox, "", fmt.Sprintf("NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: 0\r\n\r\n", pull.left), nil)
		}
	}))
	for at := want.Beat; at < want.Expires; at += want.Beat {
		pull.timers = append(pull.timers, time.AfterFunc(at, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if c.pull == pull {
				f.deliver(inbox, inbox, "", "NATS/1.0 100 Idle Heartbeat\r\n\r\n", nil)
			}
		}))
	}
	f.deliverPending(c)
}

func (c *fakeConsumer) endPull() {
	if c.pull != nil {
		for _, timer := range c.pull.timers {
			timer.Stop()
		}
		c.pull = nil
	}
}

// deliverPending delivers to a consumer what it has not got. The caller holds
// mu.
func (f *fakeServer) deliverPending(c *fakeConsumer) {
	for _, m := range f.streams[c.stream].messages {
		if m.seq < c.next || c.pull == nil || f.paused {
			continue
		}
		c.next, c.sent = m.seq+1, c.sent+1
		if c.skip {
			c.skip = false
			continue
		}
		ack := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0", c.stream, c.name, m.seq, c.sent, m.at.UnixNano())
		f.deliver(c.pull.inbox, m.subject, ack, m.headerText(fmt.Sprintf("Nats-Msg-Size: %d\r\n", len(m.body))), nil)
		if c.pull.left--; c.pull.left == 0 {
			c.endPull()
		}
	}
}
