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

// fake is a server in memory that speaks as much of NATS and JetStream as this
// package makes use of. It can lose requests, or the answers to them. What is
// sound in it is held against real servers in the module of interoperability
// tests.
type fake struct {
	token string // that clients must know; empty for none

	mu sync.Mutex

	// guarded by mu
	streams   map[string]*fakeStream
	consumers map[string]*fakeConsumer
	clients   map[*fakeClient]bool
	away      bool                         // connections are refused
	meddle    func(subject string) verdict // with a request; nil for nothing
	requests  map[string]int               // by the first words of the subject
	held      bool                         // nobody is shown anything for now
}

// verdict is what becomes of a request.
type verdict struct {
	lose   bool // it is never heard
	forget bool // it is carried out, and nobody is told
	code   int  // it is refused with this error of JetStream
}

type fakeStream struct {
	config   json.RawMessage
	settings struct {
		Subjects []string `json:"subjects"`
		Most     int      `json:"max_msgs_per_subject"`
	}
	messages []*fakeMessage // in the order of their sequences
	last     uint64
	marks    map[string]uint64 // the Nats-Msg-Id of all that was taken
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
	fake *fake
	conn net.Conn
	out  chan []byte
	done chan struct{}

	// guarded by the fake's mu
	subs map[string]string // subject by number
}

func newFake() *fake {
	return &fake{streams: map[string]*fakeStream{}, consumers: map[string]*fakeConsumer{}, clients: map[*fakeClient]bool{}, requests: map[string]int{}}
}

// Dial implements nats.CustomDialer.
func (f *fake) Dial(string, string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return nil, io.ErrUnexpectedEOF
	}
	ours, theirs := net.Pipe()
	c := &fakeClient{fake: f, conn: ours, out: make(chan []byte, 1<<16), done: make(chan struct{}), subs: map[string]string{}}
	f.clients[c] = true
	go c.write()
	go c.serve()
	return theirs, nil
}

// cut ends all connections; with away, there are no new ones for now.
func (f *fake) cut(away bool) {
	f.mu.Lock()
	f.away = away
	clients := slices.Collect(maps.Keys(f.clients))
	f.mu.Unlock()
	for _, c := range clients {
		_ = c.conn.Close()
	}
}

// hold keeps back what followers are to be shown, or lets it go.
func (f *fake) hold(held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = held
	for _, c := range f.consumers {
		f.feed(c)
	}
}

func (f *fake) set(meddle func(subject string) verdict) {
	f.mu.Lock()
	f.meddle = meddle
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
	defer c.leave()
	c.say(`INFO {"server_id":"F","server_name":"fake","version":"2.15.2","proto":1,"headers":true,"jetstream":true,"max_payload":1048576,"auth_required":%v}`+"\r\n", c.fake.token != "")
	in, refused := bufio.NewReader(c.conn), false
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		switch strings.ToUpper(words[0]) {
		case "CONNECT":
			refused = c.fake.token != "" && !strings.Contains(line, `"auth_token":"`+c.fake.token+`"`)
		case "PING":
			if refused {
				_, _ = c.conn.Write([]byte("-ERR 'Authorization Violation'\r\n"))
				return
			}
			c.say("PONG\r\n")
		case "SUB":
			c.fake.mu.Lock()
			c.subs[words[len(words)-1]] = words[1]
			c.fake.mu.Unlock()
		case "UNSUB":
			c.fake.mu.Lock()
			if len(words) == 2 {
				delete(c.subs, words[1])
			}
			c.fake.mu.Unlock()
		case "PUB", "HPUB":
			if c.published(in, words) != nil {
				return
			}
		}
	}
}

func (c *fakeClient) leave() {
	_ = c.conn.Close()
	close(c.done)
	c.fake.mu.Lock()
	defer c.fake.mu.Unlock()
	delete(c.fake.clients, c)
	for _, consumer := range c.fake.consumers {
		if consumer.pull != nil && consumer.pull.client == c {
			consumer.end()
		}
	}
}

func (c *fakeClient) say(format string, args ...any) {
	select {
	case c.out <- fmt.Appendf(nil, format, args...):
	default:
		panic("a client of the fake does not read")
	}
}

// published reads a message that a client sends.
func (c *fakeClient) published(in *bufio.Reader, words []string) error {
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
	c.fake.request(c, words[1], reply, header, payload)
	return nil
}

// tell sends a message to whoever has subscribed to an inbox. The caller holds mu.
func (f *fake) tell(inbox, subject, reply, header string, body []byte) {
	for c := range f.clients {
		for number, pattern := range c.subs {
			if pattern != inbox && !(strings.HasSuffix(pattern, ".*") && strings.HasPrefix(inbox, strings.TrimSuffix(pattern, "*"))) {
				continue
			}
			if reply != "" {
				reply += " "
			}
			if header == "" {
				c.say("MSG %s %s %s%d\r\n%s\r\n", subject, number, reply, len(body), body)
				return
			}
			c.say("HMSG %s %s %s%d %d\r\n%s%s\r\n", subject, number, reply, len(header), len(header)+len(body), header, body)
			return
		}
	}
}

func (f *fake) request(c *fakeClient, subject, reply string, header textproto.MIMEHeader, body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var v verdict
	if f.meddle != nil {
		v = f.meddle(subject)
	}
	words := strings.Split(subject, ".")
	f.requests[strings.Join(words[:min(4, len(words))], ".")]++
	if v.lose {
		return
	}
	var answer any
	switch what := strings.TrimPrefix(subject, "$JS.API."); {
	case v.code > 0:
		answer = refusedWith(v.code)
	case what == subject:
		answer = f.store(subject, header, body)
	case strings.HasPrefix(what, "STREAM.INFO."):
		answer = f.info(words[len(words)-1])
	case strings.HasPrefix(what, "STREAM.CREATE."), strings.HasPrefix(what, "STREAM.UPDATE."):
		answer = f.create(words[len(words)-1], words[3] == "CREATE", body)
	case strings.HasPrefix(what, "STREAM.MSG.GET."):
		answer = f.get(words[len(words)-1], body)
	case strings.HasPrefix(what, "CONSUMER.CREATE."):
		answer = f.consume(words[4], words[5], body)
	case strings.HasPrefix(what, "CONSUMER.MSG.NEXT."):
		f.pulled(c, words[5], words[6], reply, body)
		return
	case strings.HasPrefix(what, "CONSUMER.DELETE."):
		answer = map[string]any{"success": true}
	case strings.HasPrefix(what, "DIRECT.GET."):
		f.batch(words[4], reply, body)
		return
	}
	if v.forget || reply == "" {
		return
	}
	text, _ := json.Marshal(answer)
	f.tell(reply, reply, "", "", text)
}

func refusedWith(code int) any {
	return map[string]any{"error": map[string]any{"code": 400, "err_code": code, "description": fmt.Sprint("error ", code)}}
}

func (f *fake) info(name string) any {
	s := f.streams[name]
	if s == nil {
		return refusedWith(10059)
	}
	s.expire()
	subjects, size := map[string]bool{}, 0
	for _, m := range s.messages {
		subjects[m.subject] = true
		size += len(m.body) + 100
	}
	return map[string]any{"config": s.config, "created": time.Now(), "state": map[string]any{
		"messages": len(s.messages), "bytes": size, "last_seq": s.last, "num_subjects": len(subjects),
	}}
}

func (f *fake) create(name string, fresh bool, config []byte) any {
	s := f.streams[name]
	if s == nil && !fresh {
		return refusedWith(10059)
	}
	if s == nil {
		s = &fakeStream{marks: map[string]uint64{}}
		f.streams[name] = s
	}
	s.config = config
	if err := json.Unmarshal(config, &s.settings); err != nil {
		return refusedWith(10003)
	}
	return f.info(name)
}

func (s *fakeStream) expire() {
	now := time.Now()
	s.messages = slices.DeleteFunc(s.messages, func(m *fakeMessage) bool { return !m.until.IsZero() && !m.until.After(now) })
}

func matches(pattern, subject string) bool {
	return pattern == subject || strings.HasSuffix(pattern, ".*") && strings.HasPrefix(subject, strings.TrimSuffix(pattern, "*"))
}

// newest finds the last message of a subject.
func (s *fakeStream) newest(subject string) *fakeMessage {
	for _, m := range slices.Backward(s.messages) {
		if matches(subject, m.subject) {
			return m
		}
	}
	return nil
}

// store takes a message in, as JetStream does: what it has taken already is
// known by its mark, and then it is looked whether it was expected.
func (f *fake) store(subject string, header textproto.MIMEHeader, body []byte) any {
	for name, s := range f.streams {
		if !matches(s.settings.Subjects[0], subject) {
			continue
		}
		s.expire()
		if seq, known := s.marks[header.Get("Nats-Msg-Id")]; known {
			return map[string]any{"stream": name, "seq": seq, "duplicate": true}
		}
		if want := header.Get("Nats-Expected-Last-Subject-Sequence"); want != "" {
			is := uint64(0)
			if m := s.newest(subject); m != nil {
				is = m.seq
			}
			if want != fmt.Sprint(is) {
				return refusedWith(10071)
			}
		}
		s.last++
		m := &fakeMessage{seq: s.last, subject: subject, header: header, body: body, at: time.Now()}
		if life := header.Get("Nats-Ttl"); life != "" {
			d, _ := time.ParseDuration(life)
			m.until = m.at.Add(d)
		}
		s.messages = append(s.messages, m)
		s.marks[header.Get("Nats-Msg-Id")] = m.seq
		of := func(m *fakeMessage) bool { return m.subject == subject }
		if n := countOf(s.messages, of); n > s.settings.Most {
			oldest := slices.IndexFunc(s.messages, of)
			s.messages = slices.Delete(s.messages, oldest, oldest+1)
		}
		for _, c := range f.consumers {
			if c.stream == name {
				f.feed(c)
			}
		}
		return map[string]any{"stream": name, "seq": m.seq}
	}
	return refusedWith(10059)
}

func countOf(list []*fakeMessage, of func(*fakeMessage) bool) (n int) {
	for _, m := range list {
		if of(m) {
			n++
		}
	}
	return n
}

func (m *fakeMessage) lines(more string) string {
	text := "NATS/1.0\r\n"
	for name, values := range m.header {
		if !strings.HasPrefix(name, "Nats-") {
			text += name + ": " + values[0] + "\r\n"
		}
	}
	return text + more + "\r\n"
}

func (f *fake) get(name string, body []byte) any {
	var want struct {
		Last string `json:"last_by_subj"`
	}
	_ = json.Unmarshal(body, &want)
	s := f.streams[name]
	if s == nil {
		return refusedWith(10059)
	}
	s.expire()
	m := s.newest(want.Last)
	if m == nil {
		return refusedWith(10037)
	}
	return map[string]any{"message": map[string]any{"subject": m.subject, "seq": m.seq, "time": m.at,
		"hdrs": base64.StdEncoding.EncodeToString([]byte(m.lines(""))), "data": base64.StdEncoding.EncodeToString(m.body)}}
}

func (f *fake) batch(name, inbox string, body []byte) {
	var want struct {
		Subject string `json:"next_by_subj"`
	}
	_ = json.Unmarshal(body, &want)
	found := false
	for _, m := range f.streams[name].messages {
		if m.subject == want.Subject {
			found = true
			f.tell(inbox, inbox, "", m.lines("Nats-Subject: "+m.subject+"\r\n"), m.body)
		}
	}
	if !found {
		f.tell(inbox, inbox, "", "NATS/1.0 404 Message Not Found\r\n\r\n", nil)
		return
	}
	f.tell(inbox, inbox, "", "NATS/1.0 204 EOB\r\n\r\n", nil)
}

func (f *fake) consume(stream, name string, body []byte) any {
	var want struct {
		Config map[string]any `json:"config"`
	}
	_ = json.Unmarshal(body, &want)
	if f.streams[stream] == nil {
		return refusedWith(10059)
	}
	c := &fakeConsumer{stream: stream, name: name, next: 1}
	if from, set := want.Config["opt_start_seq"].(float64); set {
		c.next = uint64(from)
	}
	f.consumers[stream+"."+name] = c
	return map[string]any{"stream_name": stream, "name": name, "created": time.Now(), "config": want.Config}
}

// pulled lets a consumer be fed to an inbox for a while.
func (f *fake) pulled(client *fakeClient, stream, name, inbox string, body []byte) {
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
	c.end()
	pull := &fakePull{client: client, inbox: inbox, left: want.Batch}
	c.pull = pull
	pull.timers = append(pull.timers, time.AfterFunc(want.Expires, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if c.pull == pull {
			c.end()
			f.tell(inbox, inbox, "", fmt.Sprintf("NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: 0\r\n\r\n", pull.left), nil)
		}
	}))
	for at := want.Beat; at < want.Expires; at += want.Beat {
		pull.timers = append(pull.timers, time.AfterFunc(at, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if c.pull == pull {
				f.tell(inbox, inbox, "", "NATS/1.0 100 Idle Heartbeat\r\n\r\n", nil)
			}
		}))
	}
	f.feed(c)
}

func (c *fakeConsumer) end() {
	if c.pull != nil {
		for _, timer := range c.pull.timers {
			timer.Stop()
		}
		c.pull = nil
	}
}

// feed shows a consumer what it has not seen. The caller holds mu.
func (f *fake) feed(c *fakeConsumer) {
	for _, m := range f.streams[c.stream].messages {
		if m.seq < c.next || c.pull == nil || f.held {
			continue
		}
		c.next, c.sent = m.seq+1, c.sent+1
		if c.skip {
			c.skip = false
			continue
		}
		ack := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0", c.stream, c.name, m.seq, c.sent, m.at.UnixNano())
		f.tell(c.pull.inbox, m.subject, ack, m.lines(fmt.Sprintf("Nats-Msg-Size: %d\r\n", len(m.body))), nil)
		if c.pull.left--; c.pull.left == 0 {
			c.end()
		}
	}
}
