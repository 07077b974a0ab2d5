//! Serves the line protocol of all peer programs for a Rust library: `THREAD VERB NAME …` on standard input.

use crate::libraries::{Client, Held, Place, connect};
use crate::loops::{Relay, prepare_turns};
use lockkeeper_bench::Result;
use lockkeeper_bench::kit::Threads;
use lockkeeper_bench::scale::Limit;
use std::collections::HashMap;
use std::io::BufRead;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// No run takes longer.
const LONGEST: Duration = Duration::from_secs(600);

/// `peer LIBRARY URL TTL_MS`: until the input ends.
pub fn serve(arguments: &[String]) -> Result<()> {
    let [library, url, ttl_ms] = arguments else { return Err("usage: peer LIBRARY URL TTL_MS".into()) };
    let place = Place { url: url.clone(), ttl: Duration::from_millis(ttl_ms.parse()?) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!("ready");
    let mut threads: HashMap<String, tokio::sync::mpsc::UnboundedSender<Vec<String>>> = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let words: Vec<String> = line?.split(' ').map(str::to_owned).collect();
        let [thread, words @ ..] = &words[..] else { continue };
        let sender = threads.entry(thread.clone()).or_insert_with(|| {
            let (sender, commands) = unbounded_channel();
            runtime.spawn(run_thread(thread.clone(), library.clone(), place.clone(), commands));
            sender
        });
        let _ = sender.send(words.to_vec());
    }
    runtime.shutdown_background();
    Ok(())
}

/// What one thread has.
struct Thread {
    id: String,
    library: String,
    place: Place,
    client: Option<&'static dyn Client>,
    held: Option<Box<dyn Held>>,
    /// Lets what is prepared go on, and its reply.
    prepared: Option<(Sender<()>, Receiver<Result<String>>)>,
}

/// Does one thing after the other; a lock that the library calls lost is told at once.
async fn run_thread(id: String, library: String, place: Place, mut commands: UnboundedReceiver<Vec<String>>) {
    let mut thread = Thread { id, library, place, client: None, held: None, prepared: None };
    let mut is_told = false;
    loop {
        let lost = thread.held.as_ref().filter(|_| !is_told).map(|held| held.lost());
        let lost = async {
            match lost {
                Some(lost) => lost.await,
                None => std::future::pending().await,
            }
        };
        let words = tokio::select! {
            () = lost => {
                println!("{} lost!", thread.id);
                is_told = true;
                continue;
            }
            words = commands.recv() => words,
        };
        let Some(words) = words else { return };
        is_told &= words[0] == "held";
        match thread.run(&words).await {
            Ok(reply) => println!("{} {reply}", thread.id),
            Err(error) => println!("{} failed {}", thread.id, error.to_string().replace('\n', " ")),
        }
    }
}

impl Thread {
    /// Made once, and kept as long as the process.
    async fn client(&mut self) -> Result<&'static dyn Client> {
        if self.client.is_none() {
            let client = Box::leak(Box::new(connect(&self.library, &self.place).await?));
            self.client = Some(&**client);
        }
        Ok(self.client.ok_or("no client")?)
    }

    async fn run(&mut self, words: &[String]) -> Result<String> {
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["lock", name] => {
                self.lock(name).await?;
                Ok("locked".into())
            }
            ["token", name] => {
                self.lock(name).await?;
                let token = self.held.as_ref().and_then(|held| held.token());
                Ok(token.map_or_else(|| "token".into(), |token| format!("token {token}")))
            }
            ["wait", name, limit_ms] => {
                let limit = Duration::from_millis(limit_ms.parse()?);
                // Its future is dropped in time.
                let waited = tokio::time::timeout(limit, self.lock(name)).await;
                waited.map_or_else(|_| Ok("gave-up".into()), |got| got.map(|()| "locked".into()))
            }
            ["held", _] => Ok(match self.held.as_ref().ok_or("nothing is held")?.check().await {
                Some(true) => "held".into(),
                Some(false) => "lost".into(),
                None => "unknown".into(),
            }),
            ["unlock", _] => {
                self.held.take().ok_or("nothing is held")?.release().await?;
                Ok("unlocked".into())
            }
            ["turns" | "relay", ..] => {
                let (go, goes) = mpsc::channel();
                let (reply, replies) = mpsc::channel();
                let (library, place, words) = (self.library.clone(), self.place.clone(), words.to_vec());
                std::thread::spawn(move || measure(&library, &place, &words, &goes, &reply));
                let ready = tokio::task::block_in_place(|| replies.recv())??;
                self.prepared = Some((go, replies));
                Ok(ready)
            }
            ["go"] => {
                let (go, replies) = self.prepared.take().ok_or("nothing is prepared")?;
                go.send(())?;
                tokio::task::block_in_place(|| replies.recv())?
            }
            _ => Err(format!("unknown command {words:?}").into()),
        }
    }

    async fn lock(&mut self, name: &str) -> Result<()> {
        let client = self.client().await?;
        // Names live as long as the process, as its client does.
        let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
        self.held = Some(client.lock(name).await?);
        Ok(())
    }
}

/// Replies twice: that it is ready, and what came out.
fn measure(
    library: &str,
    place: &Place,
    words: &[String],
    goes: &Receiver<()>,
    reply: &Sender<Result<String>>,
) {
    let is_alone = words[0] == "turns" && words[2] == "alone";
    let threads = if is_alone { Threads::One } else { Threads::Many };
    let measured = lockkeeper_bench::kit::run(threads, LONGEST, async {
        let wait = async || {
            let _ = reply.send(Ok("ready".into()));
            match threads {
                // Others have no work meanwhile, or threads of their own.
                Threads::One => goes.recv(),
                Threads::Many => tokio::task::block_in_place(|| goes.recv()),
            }
        };
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["turns", name, shape, count, milliseconds, turns] => {
                let time = Duration::from_millis(milliseconds.parse()?);
                let limit = Limit { turns: turns.parse()?, time };
                let prepared =
                    prepare_turns(library, place, name, shape == "contended", count.parse()?).await?;
                wait().await?;
                Ok(serde_json::to_string(&prepared.run(limit).await?)?)
            }
            ["relay", name, count, hand_overs] => {
                let relay = Relay::prepare(library, place, name, count.parse()?, hand_overs.parse()?).await?;
                wait().await?;
                Ok(serde_json::to_string(&relay.run().await?)?)
            }
            _ => Err(format!("unknown command {words:?}").into()),
        }
    });
    let _ = reply.send(measured);
}
