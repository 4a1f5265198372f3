//! The page of `cenote analytics` as browsers meet it: what it tells of pools, and whom it lets in.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::nbd::{FLUSH, NbdClient, READ, TRIM, WRITE};
use super::opens::does;
use super::snapshots::Fresh;
use super::suspended::wait_for;
use super::traces::has_tap;
use super::{World, can_mount, look_at_page};

/// A running server; dropping it kills it.
struct Analytics {
    child: Child,
    /// Where it says that it listens.
    place: String,
}

impl Drop for Analytics {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl World {
    fn analytics(&self, args: &[&str]) -> Analytics {
        let mut command = self.command(env!("CARGO_BIN_EXE_cenote"));
        let mut child = command.arg("analytics").args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let place = line.trim_end().strip_prefix("listening at ").expect("it listens").to_owned();
        Analytics { child, place }
    }
}

impl Analytics {
    /// Address and port.
    fn address(&self) -> &str {
        self.place.strip_prefix("http://").unwrap().split('/').next().unwrap()
    }

    fn connect(&self, path: &str, fields: &str) -> TcpStream {
        let port = self.address().rsplit_once(':').unwrap().1;
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.address());
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn get(&self, path: &str, fields: &str) -> (String, String) {
        let mut answer = String::new();
        self.connect(path, fields).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn events(&self) -> EventLines {
        EventLines(BufReader::new(self.connect("/events", "")))
    }
}

/// A stream of events.
struct EventLines(BufReader<TcpStream>);

impl EventLines {
    /// The next event: its name, and what it says.
    fn next(&mut self) -> (String, Value) {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
            if let Some(told) = line.trim_end().strip_prefix("event: ") {
                name = told.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data).unwrap());
            }
        }
    }

    /// The first tick of which that is true.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let (name, told) = self.next();
            if name == "tick" && is_so(&told) {
                return told;
            }
            assert!(Instant::now() < end, "{what}: {told}");
        }
    }
}

fn pool<'a>(told: &'a Value, name: &str) -> &'a Value {
    told["pools"].as_array().unwrap().iter().find(|pool| pool["name"] == name).unwrap_or(&Value::Null)
}

#[test]
fn pools_are_shown_live_and_one_that_hangs_delays_none() {
    let world = World::new("analytics", &["mirror", "single"]);
    let server = world.analytics(&["--listen", "127.0.0.1:0"]);
    let mut events = server.events();
    let (name, start) = events.next();
    assert!(name == "start" && start["pools"] == serde_json::json!([]), "no pool yet: {start}");
    world.check("import -N -o readonly=on -d DIR/mirror t_mirror", 0, "");
    world.check("import -N -d DIR/single t_single", 0, "");
    let is_known = |told: &Value, name: &str| pool(told, name)["row"].is_array();
    let told = events.until("both", |told| is_known(told, "t_mirror") && is_known(told, "t_single"));
    assert_eq!(pool(&told, "t_mirror")["vdevs"].as_array().unwrap().len(), 4, "root, mirror, two sides");

    // a page that comes later gets all at once
    let (_, start) = server.events().next();
    let mirror = start["pools"].as_array().unwrap().iter().map(|one| &one["now"]).find(|now| now["name"] == "t_mirror");
    let facts = &mirror.unwrap()["facts"];
    assert_eq!((&facts["state"], &facts["is_writable"]), (&"ONLINE".into(), &false.into()));
    let names: Vec<&str> =
        facts["vdevs"].as_array().unwrap().iter().map(|vdev| vdev["name"].as_str().unwrap()).collect();
    assert_eq!(names[..2], ["t_mirror", "mirror-0"]);
    assert_eq!(names[2], world.dir.join("mirror/vda.img").to_str().unwrap());
    let guid = facts["vdevs"][0]["guid"].as_str().unwrap();
    let (head, heat) = server.get(&format!("/heat?pool=t_mirror&vdev={guid}&after=0"), "");
    assert!(head.starts_with("HTTP/1.1 200 ") && heat.starts_with("{\"seconds\":5,\"columns\":["), "{head}\n{heat}");

    let signal = |name: &str| {
        let mut kill = Command::new("kill");
        assert!(kill.args(["-s", name, &world.process_of("t_mirror")]).status().unwrap().success());
    };
    signal("STOP");
    let told = events.until("it hangs", |told| pool(told, "t_mirror")["silent"].is_string());
    assert!(pool(&told, "t_mirror")["silent"].as_str().unwrap().starts_with("does not answer for "), "{told}");
    let row = pool(&told, "t_single")["row"][0].as_u64().unwrap();
    let (_, told) = events.next();
    let (_, told) = if pool(&told, "t_single")["row"][0] == row { events.next() } else { (String::new(), told) };
    assert!(pool(&told, "t_single")["row"][0].as_u64().unwrap() > row && pool(&told, "t_single")["silent"].is_null());
    signal("CONT");
    events.until("it is back", |told| pool(told, "t_mirror")["silent"].is_null());
    world.check("export t_mirror", 0, "");
    events.until("it is gone", |told| pool(told, "t_mirror").is_null() && is_known(told, "t_single"));
    assert!(server.get(&format!("/heat?pool=t_mirror&vdev={guid}&after=0"), "").0.starts_with("HTTP/1.1 404 "));
}

/// What a client of a volume asks for is told as its own, and as the volume's.
#[test]
fn clients_and_volumes_are_shown() {
    let fresh = Fresh::new("analytics-clients");
    fresh.does("create -V 8M -o org.cenote:nbd=on fresh/v");
    let server = fresh.world.analytics(&["--listen", "127.0.0.1:0"]);
    let mut events = server.events();
    events.until("nobody uses it yet", |told| pool(told, "fresh")["client_count"] == 0);
    let mut client = NbdClient::connect(&fresh);
    assert_eq!(client.go("fresh/v"), Ok(8 << 20));
    let told = events.until("requests of a client", |told| {
        for _ in 0..16 {
            client.ask(0, WRITE, 0, 8192, &[7; 8192]);
            client.ask(0, READ, 0, 4096, &[]);
            client.ask(0, READ, 4096, 4096, &[]);
            client.ask(0, TRIM, 1 << 20, 1 << 20, &[]);
            client.ask(0, FLUSH, 0, 0, &[]);
        }
        let told = pool(told, "fresh");
        told["clients"][0][3][0].as_f64().unwrap_or_default() > 0.0
            && told["datasets"].as_array().unwrap().iter().any(|row| row[0] == "fresh/v" && row[1][1] != 0.0)
    });
    let told = pool(&told, "fresh");
    let [protocol, name, volume] = [0, 1, 2].map(|at| told["clients"][0][at].as_str().unwrap());
    let own = format!("pid {}", std::process::id());
    assert_eq!((protocol, name, volume, &told["client_count"]), ("nbd", &*own, "fresh/v", &Value::from(1)));
    let rates: Vec<f64> = (0..5).map(|at| told["clients"][0][3][at].as_f64().unwrap()).collect();
    let is_near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.2;
    let [reads, read, writes, written, others] = rates[..] else { panic!("{rates:?}") };
    assert!(is_near(read / reads, 4096.0) && is_near(written / writes, 8192.0), "{rates:?}");
    assert!(is_near(reads / writes, 2.0) && is_near(others / writes, 2.0), "{rates:?}");
    // how long flushes, reads and writes took, of all and of its own
    let row = told["datasets"].as_array().unwrap().iter().find(|row| row[0] == "fresh/v").unwrap();
    for id in ["0", row[2].as_str().unwrap()] {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            client.ask(0, WRITE, 0, 8192, &[7; 8192]);
            client.ask(0, FLUSH, 0, 0, &[]);
            client.ask(0, READ, 0, 4096, &[]);
            let (_, body) = server.get(&format!("/heat?pool=fresh&dataset={id}&after=0"), "");
            let told: Value = serde_json::from_str(&body).unwrap();
            let columns = told["columns"].as_array().unwrap();
            let has_some =
                |column: &Value, kind: usize| column[1][kind].as_array().is_some_and(|pairs| !pairs.is_empty());
            if (0..3).all(|kind| columns.iter().any(|column| has_some(column, kind))) {
                break;
            }
            assert!(Instant::now() < end, "{id}: {body}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    let (_, body) = server.get("/heat?pool=fresh&dataset=99999999&after=0", "");
    let told: Value = serde_json::from_str(&body).unwrap();
    let is_empty = |column: &Value| column[1] == serde_json::json!([[], [], [], []]);
    assert!(told["columns"].as_array().unwrap().iter().all(is_empty), "{body}");
    drop(client);
    events.until("it has left", |told| pool(told, "fresh")["client_count"] == 0);
}

/// Files are looked at only while somebody asks, by one command at a time; their names are not for every user.
#[test]
fn files_that_are_used_most_are_told_while_they_are_asked_for() {
    if !can_mount("analytics-files") {
        return;
    }
    let world = World::new("analytics-files", &[]);
    std::fs::File::create(world.dir.join("disk")).unwrap().set_len(256 << 20).unwrap();
    world.check("create -o cachefile=none -R DIR/mnt fresh DIR/disk", 0, "");
    does(&world, "create -o org.cenote:pagecache=off -o atime=off fresh/used");
    let folder = world.dir.join("mnt/fresh/used/a folder");
    std::fs::create_dir(&folder).unwrap();
    let [busy, idle] = ["busy", "idle"].map(|name| std::fs::File::create(folder.join(name)).unwrap());
    let inode = busy.metadata().unwrap().ino().to_string();
    let token = world.dir.join("token");
    std::fs::write(&token, "a-token-of-my-own\n").unwrap();
    let near = world.analytics(&["--listen", "127.0.0.1:0"]);
    let secret = world.analytics(&["--listen", "127.0.0.1:0", "--token-file", token.to_str().unwrap()]);
    let told = near.events().until("the file system", |told| {
        busy.write_all_at(&[7; 4096], 0).unwrap();
        pool(told, "fresh")["datasets"].as_array().is_some_and(|rows| rows.iter().any(|row| row[0] == "fresh/used"))
    });
    let rows = pool(&told, "fresh")["datasets"].as_array().unwrap();
    let id = rows.iter().find(|row| row[0] == "fresh/used").unwrap()[2].as_str().unwrap().to_owned();
    let ask = |server: &Analytics| -> Value {
        busy.write_all_at(&[7; 4096], 0).unwrap();
        let (head, body) =
            server.get(&format!("/files?pool=fresh&dataset={id}"), "Cookie: token=a-token-of-my-own\r\n");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        serde_json::from_str(&body).unwrap()
    };
    let until = |server: &Analytics, is_so: &dyn Fn(&Value) -> bool| {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let told = ask(server);
            if is_so(&told) {
                return told;
            }
            assert!(Instant::now() < end, "{told}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let has_files = |told: &Value| told["files"].as_array().is_some_and(|files| !files.is_empty());
    assert!(!has_tap(&world), "nobody has asked");
    let told = until(&near, &has_files);
    assert_eq!((&told["files"][0][0], &told["files"][0][1]), (&Value::from(inode.clone()), &Value::Null), "{told}");
    assert_eq!((&told["has_names"], told["files"].as_array().unwrap().len()), (&Value::from(false), 1), "{told}");
    let [_, _, writes, written] = [0, 1, 2, 3].map(|at| told["files"][0][2][at].as_f64().unwrap());
    assert!(writes > 0.0 && (written / writes / 4096.0 - 1.0).abs() < 0.01, "{told}");
    // one command a pool; then the other has its turn, as the first does not ask any more
    assert!(has_tap(&world));
    let is_busy = |told: &Value| told["failure"].as_str().is_some_and(|why| why.contains("another command looks"));
    until(&secret, &is_busy);
    let told = until(&secret, &has_files);
    assert_eq!((&told["files"][0][1], &told["has_names"]), (&Value::from("/a folder/busy"), &Value::from(true)));
    wait_for("the tap to close", || !has_tap(&world));
    // a page of somebody else may not have a pool's process do that
    let (head, _) = near.get(&format!("/files?pool=fresh&dataset={id}"), "Sec-Fetch-Site: cross-site\r\n");
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    for (path, code) in [("/files?pool=none&dataset=1", 404), ("/files?pool=fresh&dataset=x", 400), ("/files", 400)] {
        assert!(near.get(path, "").0.starts_with(&format!("HTTP/1.1 {code} ")), "{path}");
    }
    assert!(!has_tap(&world));
    drop((busy, idle));
    world.check("export fresh", 0, "");
}

#[test]
fn a_page_comes_whole_and_changes_nothing() {
    let world = World::new("analytics-page", &[]);
    let server = world.analytics(&["--listen", "127.0.0.1:0"]);
    let (head, page) = server.get("/", "");
    assert!(head.contains("Content-Type: text/html") && page.starts_with("<!doctype html>"), "{head}");
    let policy = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                  img-src 'self' data:; ";
    assert!(head.contains(policy), "{head}");
    for path in ["/analytics.js", "/charts.js", "/analytics.css"] {
        assert!(page.contains(&path[1..]) && server.get(path, "").0.starts_with("HTTP/1.1 200 "), "{path}");
    }
    for path in ["/heat", "/heat?pool=x&vdev=-1", "/heat?pool=%3Cimg%3E&vdev=18446744073709551616"] {
        assert!(server.get(path, "").0.starts_with("HTTP/1.1 400 "), "{path}");
    }
    for path in ["/metrics", "/report"] {
        assert!(server.get(path, "").0.starts_with("HTTP/1.1 404 "), "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        write!(stream, "{method} / HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", server.address()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 405 "), "{method}: {answer}");
    }
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: evil.example\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    // pages are bounded, and those that stay open keep others from nothing but that
    let mut open: Vec<EventLines> = (0..32).map(|_| server.events()).collect();
    open.iter_mut().for_each(|events| assert_eq!(events.next().0, "start"));
    assert!(server.get("/events", "").0.starts_with("HTTP/1.1 503 "));
    assert!(server.get("/", "").0.starts_with("HTTP/1.1 200 "));
    open.truncate(8);
    let end = Instant::now() + Duration::from_secs(20);
    let is_served = || {
        let mut line = [0; 12];
        server.connect("/events", "").read_exact(&mut line).unwrap();
        line == *b"HTTP/1.1 200"
    };
    while !is_served() {
        assert!(Instant::now() < end, "pages that have gone make room");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_socket_is_its_owners_and_an_open_address_asks_for_a_token() {
    let world = World::new("analytics-doors", &[]);
    let server = world.analytics(&[]);
    let socket = world.dir.join("run/analytics");
    assert!(server.place.starts_with(socket.to_str().unwrap()), "{}", server.place);
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let ask = |host: &str| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("localhost:8765").starts_with("HTTP/1.1 200 "), "a port that somebody forwards");
    assert!(ask("evil.example:8765").starts_with("HTTP/1.1 421 "));
    assert_eq!(world.zpool("list -Ho name").stdout, b"", "it is nobody's mistake for a pool");

    let open = world.analytics(&["--listen", "0.0.0.0:0"]);
    let token = open.place.split_once("/?token=").expect("a token is printed").1;
    assert!(token.len() == 48, "{token}");
    for path in ["/", "/events", "/analytics.js", "/?token=0", "/heat?pool=x&token="] {
        let (head, body) = open.get(path, "");
        assert!(head.starts_with("HTTP/1.1 401 ") && !body.contains("<"), "{path}: {head}");
    }
    let (head, _) = open.get(&format!("/?token={token}"), "");
    assert!(head.starts_with("HTTP/1.1 303 ") && head.contains("Location: /\r\n"), "{head}");
    let cookie = format!("token={token}");
    assert!(head.contains(&format!("Set-Cookie: {cookie}; HttpOnly; SameSite=Strict; Path=/\r\n")), "{head}");
    assert!(open.get("/", &format!("Cookie: {cookie}\r\n")).0.starts_with("HTTP/1.1 200 "));

    let file = world.dir.join("token");
    std::fs::write(&file, "a-token-of-my-own\n").unwrap();
    let own = world.analytics(&["--listen", "127.0.0.1:0", "--token-file", file.to_str().unwrap()]);
    assert!(own.place.ends_with('/') && own.get("/", "").0.starts_with("HTTP/1.1 401 "), "it is not printed");
    assert!(own.get("/", "Cookie: token=a-token-of-my-own\r\n").0.starts_with("HTTP/1.1 200 "));
    std::fs::write(&file, "short").unwrap();
    let mut command = world.command(env!("CARGO_BIN_EXE_cenote"));
    let refused = command.args(["analytics", "--token-file"]).arg(&file).output().unwrap();
    assert!(refused.status.code() == Some(1) && String::from_utf8_lossy(&refused.stderr).contains("a token has 16"));
}

/// What would be an element, if anything made elements of names.
const HOSTILE: &str = "<img src=x onerror=console.error('executed')>";

/// An answer of `cenote advise cache --json`, as far as the page reads it.
fn advice(word: &str) -> String {
    let point = |mib: u64, hits: f64| {
        let [low, high] = [hits - 0.1, hits + 0.1];
        serde_json::json!({ "bytes": mib << 20, "hits": hits, "hits_low": low, "hits_high": high,
            "disk_reads_per_s": 12.5, "written_bytes_per_day": mib << 30 })
    };
    let rams = [point(64, 0.25), point(128, 0.5), point(1024, 0.625)];
    let text = [format!("Do not buy {word}.")];
    let json = serde_json::json!({ "reads": 70_000, "seconds": 60.0, "ram": 128u64 << 20, "rams": rams,
        "devices": [point(512, 0.75), point(4096, 0.875)], "verdict": { "text": text } });
    json.to_string()
}

/// Uses a volume, and a file if there can be one, until the page was looked at.
fn use_while(world: &World, look: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let mount = world.dir.join("mnt/tank/files");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = NbdClient::connect_at(&world.dir.join("run/nbd/tank.sock"));
            client.go("tank/v").unwrap();
            let file = mount.exists().then(|| std::fs::File::create(mount.join(HOSTILE)).unwrap());
            while !is_over.load(Ordering::Relaxed) {
                client.ask(0, WRITE, 0, 8192, &[7; 8192]);
                file.iter().for_each(|file| file.write_all_at(&[7; 8192], 0).unwrap());
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        // what fails in it ends the other thread, too
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look));
        is_over.store(true, Ordering::Relaxed);
        looked.unwrap_or_else(|failure| std::panic::resume_unwind(failure));
    });
}

/// Debian's Chromium finds nothing wrong with the page, wide, narrow and dark, with a pool whose device and whose file are
/// called by what would be an element, and the panels of what is only asked for then.
#[test]
fn the_page_is_right_in_a_browser() {
    let world = World::new("analytics-look", &[]);
    let hostile = world.dir.join(format!("{HOSTILE}.img"));
    std::fs::File::create(&hostile).unwrap().set_len(256 << 20).unwrap();
    let mut create = world.command(env!("CARGO_BIN_EXE_cenote"));
    let created =
        create.args(["zpool", "create", "-R"]).arg(world.dir.join("mnt")).arg("tank").arg(&hostile).output().unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let kept = world.dir.join("kept");
    does(&world, "create -V 8M -o org.cenote:nbd=on tank/v");
    let mut words = vec!["tank/v", "nbd"];
    if can_mount("files of the page") {
        does(&world, "create -o org.cenote:pagecache=off tank/files");
        words.push(HOSTILE);
    }
    let reports = world.dir.join("reports");
    std::fs::create_dir_all(reports.join("lab")).unwrap();
    let script = format!("<!doctype html><title>lab</title>{HOSTILE}<script>console.error('executed')</script>");
    std::fs::write(reports.join("lab/report.html"), &script).unwrap();
    std::fs::write(reports.join("advice.json"), advice(HOSTILE)).unwrap();
    words.push("The report of cenote lab of");
    words.push("Do not buy <img");
    words.push("How long commits take");
    words.push("How long reads and writes take");
    let token = world.dir.join("token");
    std::fs::write(&token, "a-token-of-my-own\n").unwrap();
    let reports = ["--reports", reports.to_str().unwrap()];
    let args = ["--listen", "127.0.0.1:0", "--keep", kept.to_str().unwrap(), "--token-file", token.to_str().unwrap()];
    let server = world.analytics(&[&args[..], &reports].concat());
    let own = format!("pid {}", std::process::id());
    words.push(&own);
    use_while(&world, || look_at_page(&format!("{}?token=a-token-of-my-own", server.place), &words));
    // a file for the pool, of which no minute has ended, or one
    let files: Vec<_> = std::fs::read_dir(&kept).unwrap().map(|file| file.unwrap().file_name()).collect();
    let is_of_pool = |name: &std::ffi::OsString| {
        let name = name.to_str().unwrap();
        name.starts_with("tank-") && name.ends_with(".rows")
    };
    assert!(files.len() == 1 && is_of_pool(&files[0]), "{files:?}");
    let cookie = "Cookie: token=a-token-of-my-own\r\n";
    // the report comes as it is, and a browser runs nothing of it, and asks nobody
    let (head, page) = server.get("/report", cookie);
    let policy = "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; ";
    assert!(head.contains(policy) && head.matches("Content-Security-Policy").count() == 1 && page == script, "{head}");
    for path in ["/report/../token", "/report/x", "/reports/x", "/report.html", "//report"] {
        assert!(server.get(path, cookie).0.starts_with("HTTP/1.1 404 "), "{path}");
    }
    let (head, rows) = server.get("/past?pool=tank&from=0&until=99999999999", cookie);
    assert!(
        head.starts_with("HTTP/1.1 200 ") && serde_json::from_str::<Vec<Value>>(&rows).unwrap().len() <= 2,
        "{head}\n{rows}"
    );
    assert!(server.get("/past?pool=tank&from=x&until=1", cookie).0.starts_with("HTTP/1.1 400 "));
    assert!(server.get("/past?pool=none&from=0&until=1", cookie).0.starts_with("HTTP/1.1 404 "));
    world.check("destroy tank", 0, "");
}
