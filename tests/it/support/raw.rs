//! A connection on which a story says whatever it likes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What came back, and when the other end closed.
#[derive(Debug)]
pub struct Closed {
    pub text: String,
    /// Whether it was closed in peace; a reset may take the last answer along.
    pub is_in_peace: bool,
    pub after: Duration,
}

impl Closed {
    /// The status of the first answer; zero when there was none.
    pub fn status(&self) -> u16 {
        self.text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }
}

/// Sends bytes at once, then keeps silent until the other end closes, twenty seconds at most.
pub async fn say(addr: SocketAddr, bytes: &[u8]) -> Closed {
    say_slowly(addr, bytes, &[], Duration::ZERO).await
}

/// Sends bytes at once and says a while later that no more will come, as one who leaves a connection on which more could
/// be asked.
pub async fn say_and_leave(addr: SocketAddr, bytes: &[u8]) -> Closed {
    talk(addr, bytes, &[], Duration::ZERO, Some(Duration::from_secs(2))).await
}

/// Sends bytes at once and more of them one by one, with a pause before each, until the other end closes.
pub async fn say_slowly(addr: SocketAddr, bytes: &[u8], dripping: &[u8], pause: Duration) -> Closed {
    talk(addr, bytes, dripping, pause, None).await
}

async fn talk(
    addr: SocketAddr,
    bytes: &[u8],
    dripping: &[u8],
    pause: Duration,
    leaves_after: Option<Duration>,
) -> Closed {
    let stream = TcpStream::connect(addr).await.expect("a connection");
    let (mut hears, mut says) = stream.into_split();
    let since = Instant::now();
    let talk = async {
        // The other end may have heard enough before all is said.
        let _ = says.write_all(bytes).await;
        for byte in dripping {
            tokio::time::sleep(pause).await;
            if says.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
        if let Some(leaves_after) = leaves_after {
            tokio::time::sleep(leaves_after).await;
            let _ = says.shutdown().await;
        }
        std::future::pending::<()>().await;
    };
    let mut heard = Vec::new();
    let is_in_peace = tokio::select! {
        // A reset counts as closed; what came before it was heard.
        end = hears.read_to_end(&mut heard) => end.is_ok(),
        () = talk => unreachable!("it waits for the other end"),
        () = tokio::time::sleep(Duration::from_secs(20)) => {
            panic!("still open after twenty seconds: {}", String::from_utf8_lossy(bytes));
        }
    };
    let text = String::from_utf8_lossy(&heard).into_owned();
    Closed { text, is_in_peace, after: since.elapsed() }
}
