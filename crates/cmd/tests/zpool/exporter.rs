//! The exporter as Prometheus meets it: two pools in use, and a page that is read strictly.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};

use super::World;

/// A running exporter; dropping it kills it.
struct Exporter(Child);

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl World {
    fn exporter_command(&self, listen: Option<&str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.arg("exporter").env("CENOTE_RUN", self.dir.join("run"));
        command.args(listen.map(|place| ["--listen", place]).iter().flatten());
        command
    }

    /// Starts one, and says where it tells that it listens.
    fn exporter(&self, listen: Option<&str>) -> (Exporter, String) {
        let mut child = self.exporter_command(listen).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Exporter(child), line.trim_end().strip_prefix("listening at ").unwrap().to_owned())
    }

    /// A counter of a pool, as soon as its process has written it.
    fn kstat(&self, pool: &str, table: &str, name: &str) -> u64 {
        let path = self.dir.join("run/spl/kstat/zfs").join(pool).join(table);
        let file = loop {
            match std::fs::read_to_string(&path) {
                Ok(file) => break file,
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
        };
        let line = file.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
        line.split_whitespace().last().unwrap().parse().unwrap()
    }
}

/// Head and body of what a request is answered.
fn talk(mut conn: impl Read + Write, request: &str) -> (String, String) {
    conn.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    conn.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// The values of a page, by name and labels. Every line is looked at as the format demands.
fn values(page: &str) -> HashMap<String, f64> {
    let mut values = HashMap::new();
    let (mut helped, mut typed) = (HashSet::new(), HashMap::new());
    let mut current = String::new();
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(helped.insert(name.to_owned()) && !help.is_empty(), "{line}");
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(name == current && ["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert_eq!(typed.insert(name.to_owned(), kind.to_owned()), None, "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').map_or((series, None), |(name, rest)| (name, Some(rest)));
            assert!(name == current && typed.contains_key(name), "{line}");
            assert!(
                name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && name.starts_with("cenote_"),
                "{line}"
            );
            labels.into_iter().for_each(|labels| check_labels(labels.strip_suffix('}').unwrap(), line));
            assert_eq!(values.insert(series.to_owned(), value.parse().unwrap()), None, "{line}");
        }
    }
    values
}

/// `name="value",...`, where `\`, `"` and line feeds are escaped.
fn check_labels(mut rest: &str, line: &str) {
    loop {
        let (name, value) = rest.split_once("=\"").expect(line);
        assert!(!name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next().expect(line) {
                (at, '"') => break at,
                (_, '\\') => assert!(matches!(chars.next(), Some((_, '\\' | '"' | 'n'))), "{line}"),
                _ => {}
            }
        };
        match &value[end + 1..] {
            "" => return,
            more => rest = more.strip_prefix(',').expect(line),
        }
    }
}

#[test]
fn pools_are_told_to_prometheus() {
    let world = World::new("exporter", &["mirror", "single"]);
    let socket = world.dir.join("prom.sock");
    let (mut unix, _) = world.exporter(socket.to_str());
    let (_tcp, url) = world.exporter(Some("127.0.0.1:0"));
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nAccept: text/plain;version=0.0.4\r\n\r\n");
    let request = request.as_str();
    let scrape = || {
        let answers =
            [talk(TcpStream::connect(address).unwrap(), request), talk(UnixStream::connect(&socket).unwrap(), request)];
        answers.map(|(head, body)| {
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
            assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
            values(&body)
        })
    };
    assert!(scrape().iter().all(|page| page.len() == 2 && page["cenote_exporter_silent_pools"] == 0.0), "no pool yet");

    world.check("import -N -o readonly=on -d DIR/mirror t_mirror", 0, "");
    world.check("import -N -d DIR/single t_single", 0, "");
    for pool in ["t_mirror", "t_single"] {
        let before = world.kstat(pool, "arcstats", "hits");
        let pages = scrape();
        let after = world.kstat(pool, "arcstats", "hits");
        for page in &pages {
            let hits = page[&format!("cenote_arc_hits_total{{pool=\"{pool}\"}}")];
            assert!((before as f64..=after as f64).contains(&hits), "{before} {hits} {after}");
            assert_eq!(page[&format!("cenote_pool_state{{pool=\"{pool}\",state=\"online\"}}")], 1.0);
            assert_eq!(page[&format!("cenote_pool_state{{pool=\"{pool}\",state=\"degraded\"}}")], 0.0);
        }
    }
    assert!(world.kstat("t_single", "arcstats", "hits") > 0);
    let [page, _] = scrape();
    assert_eq!(page["cenote_pool_writable{pool=\"t_mirror\"}"], 0.0);
    assert_eq!(page["cenote_pool_writable{pool=\"t_single\"}"], 1.0);
    let size = String::from_utf8(world.zpool("list -Hpo size t_mirror").stdout).unwrap();
    assert_eq!(page["cenote_pool_size_bytes{pool=\"t_mirror\"}"], size.trim().parse::<f64>().unwrap());
    assert_eq!(page["cenote_vdev_state{pool=\"t_mirror\",vdev=\"mirror-0\",state=\"online\"}"], 1.0);
    let leaf = format!("pool=\"t_mirror\",vdev=\"{}/vda.img\"", world.dir.join("mirror").display());
    assert!(page[&format!("cenote_vdev_operations_total{{{leaf},op=\"read\"}}")] > 0.0, "its labels at least");
    assert_eq!(page[&format!("cenote_vdev_errors_total{{{leaf},type=\"checksum\"}}")], 0.0);

    let delete = format!("DELETE /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let (head, _) = talk(TcpStream::connect(address).unwrap(), &delete);
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
    let (head, _) = talk(UnixStream::connect(&socket).unwrap(), "\r\n\r\nnonsense\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    // one whose process does not answer hides no other
    let signal = |name: &str| {
        let mut kill = Command::new("kill");
        assert!(kill.args(["-s", name, &world.process_of("t_mirror")]).status().unwrap().success());
    };
    signal("STOP");
    let [silent, _] = scrape();
    signal("CONT");
    assert_eq!(silent["cenote_exporter_silent_pools"], 1.0);
    assert!(silent.keys().all(|series| !series.contains("t_mirror")));
    assert_eq!(silent["cenote_pool_state{pool=\"t_single\",state=\"online\"}"], 1.0);
    assert_eq!(scrape()[0]["cenote_exporter_silent_pools"], 0.0);
    world.check("export t_mirror", 0, "");
    assert!(scrape().iter().all(|page| page.keys().all(|series| !series.contains("t_mirror"))));

    // it takes its socket along
    assert!(Command::new("kill").arg(unix.0.id().to_string()).status().unwrap().success());
    assert!(unix.0.wait().unwrap().success() && !socket.exists());
}

/// Each metric that docs/grafana-dashboard.json asks for is one that a pool in use has.
#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let world = World::new("exporter-dashboard", &["single"]);
    let socket = world.dir.join("prom.sock");
    let (_exporter, _) = world.exporter(socket.to_str());
    world.check("import -N -d DIR/single t_single", 0, "");
    world.kstat("t_single", "zil", "zil_commit_count");
    let (_, body) = talk(UnixStream::connect(&socket).unwrap(), "GET /metrics HTTP/1.1\r\n\r\n");
    let page = values(&body);
    let dashboard = include_str!("../../../../docs/grafana-dashboard.json");
    let names: HashSet<&str> = page.keys().map(|series| series.split('{').next().unwrap()).collect();
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let asked = dashboard.split(|c| !is_of_name(c)).filter(|word| word.starts_with("cenote_"));
    let asked: HashSet<&str> = asked.collect();
    // those of mounted file systems, of which there is none here
    let of_datasets = ["cenote_dataset_nread_total", "cenote_dataset_nwritten_total"];
    let missing: Vec<&&str> =
        asked.iter().filter(|name| !names.contains(*name) && !of_datasets.contains(name)).collect();
    assert!(asked.len() > 20 && missing.is_empty(), "{missing:?}");
    world.check("export t_single", 0, "");
}

/// A socket unless something else is asked for; and what any user of the machine does keeps nobody out.
#[test]
fn half_a_request_keeps_nobody_out() {
    let world = World::new("exporter-busy", &[]);
    let (_unix, told) = world.exporter(None);
    let socket = world.dir.join("run/metrics");
    assert_eq!(told, format!("{}, path /metrics", socket.display()));
    let (head, _) = talk(UnixStream::connect(&socket).unwrap(), "GET /metrics HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.0 200 "), "{head}");
    // it is nobody's mistake for a pool
    assert_eq!(world.zpool("list -Ho name").stdout, b"");

    let (_tcp, url) = world.exporter(Some("127.0.0.1:0"));
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let half = |_| {
        let mut conn = TcpStream::connect(address).unwrap();
        conn.write_all(b"GET /metrics HT").unwrap();
        conn
    };
    let _held: Vec<TcpStream> = (0..200).map(half).collect();
    let ask = |host: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
        talk(TcpStream::connect(address).unwrap(), &request).0
    };
    for _ in 0..100 {
        let head = ask(address);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
    for host in ["evil.example", "", "127.0.0.1:1"] {
        let head = ask(host);
        assert!(head.starts_with("HTTP/1.1 421 "), "{head}");
    }
}

#[test]
fn others_are_not_listened_to() {
    let world = World::new("exporter-refused", &[]);
    let complaint = |listen: &str| -> (Option<i32>, String) {
        let Output { status, stderr, .. } = world.exporter_command(Some(listen)).output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    let (code, text) = complaint("0.0.0.0:9134");
    assert!(code == Some(2) && text.contains("only loopback addresses"), "{text}");
    let (code, text) = complaint("/nonexistent/folder/sock");
    assert!(code == Some(1) && text.starts_with("cenote exporter: /nonexistent/folder/sock: "), "{text}");
}
