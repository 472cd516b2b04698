//! A certificate authority of the story's own, and what it signed for servers on this machine. Made with `openssl`, as
//! a person would.

use std::path::{Path, PathBuf};
use std::process::Command;

use payonce::local::{Finder, packages};

use super::stores::fresh_name;

/// Kind of key: made in a moment.
const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/// An authority, and one certificate by it for 127.0.0.1. Gone when dropped.
pub struct Authority {
    dir: PathBuf,
}

impl Authority {
    pub async fn make() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let find = || Finder::of_machine().program("openssl");
        packages::ensure("openssl", &["openssl"], find).await.expect("openssl");
        // Servers run as users of their own, who cannot look into everybody's checkout.
        let dir = std::env::temp_dir().join(format!("payonce-authority-{}", fresh_name()));
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).expect("open");
        let made = Self { dir };
        std::fs::write(made.path("san"), "subjectAltName = IP:127.0.0.1, DNS:localhost\n").expect("written");
        made.openssl(&format!("req -x509 {KEY} -subj /CN=payonce-test -days 2 -keyout ca.key -out ca.pem"));
        made.openssl(&format!("req {KEY} -subj /CN=localhost -keyout server.key -out server.csr"));
        let signed = "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile san";
        made.openssl(&format!("{signed} -out server.pem"));
        for name in ["ca.pem", "server.pem", "server.key"] {
            std::fs::set_permissions(made.path(name), PermissionsExt::from_mode(0o644)).expect("open");
        }
        made
    }

    fn openssl(&self, words: &str) {
        let made = Command::new("openssl").args(words.split(' ')).current_dir(&self.dir).output();
        let made = made.expect("openssl runs");
        assert!(made.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&made.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// What whoever trusts it is given.
    pub fn certificate(&self) -> String {
        self.path("ca.pem").display().to_string()
    }

    /// Lines for `redis.conf` and `sentinel.conf`: TLS on this port, also towards other servers.
    pub fn redis_conf(&self, port: u16) -> Vec<String> {
        let line = |word: &str, path: &Path| format!("{word} \"{}\"", path.display());
        vec![
            format!("tls-port {port}"),
            line("tls-ca-cert-file", &self.path("ca.pem")),
            line("tls-cert-file", &self.path("server.pem")),
            line("tls-key-file", &self.path("server.key")),
            "tls-auth-clients no".to_owned(),
            "tls-replication yes".to_owned(),
        ]
    }

    /// Lines for `rabbitmq.conf`: TLS on this port.
    pub fn rabbitmq_conf(&self, port: u16) -> Vec<String> {
        let line = |word: &str, name: &str| format!("ssl_options.{word} = {}", self.path(name).display());
        vec![
            format!("listeners.ssl.1 = 127.0.0.1:{port}"),
            line("cacertfile", "ca.pem"),
            line("certfile", "server.pem"),
            line("keyfile", "server.key"),
            "ssl_options.verify = verify_none".to_owned(),
            "ssl_options.fail_if_no_peer_cert = false".to_owned(),
        ]
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}
