//! Many processes with many tasks on one lock, and a server that stops for a while: grants in each second, before, during and
//! after. `overload [PROCESSES [TASKS [SECONDS STOPPED [SECONDS IN ALL]]]]`

use lockkeeper::Connect;
use lockkeeper_testkit::Etcd;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::sleep;
use std::time::Duration;

/// The worker's word on the command line.
const WORKER: &str = "worker";
const BEFORE_SECONDS: u64 = 12;
const SECOND: Duration = Duration::from_secs(1);
const HOLD: Duration = Duration::from_millis(2);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|first| first == WORKER).is_some() {
        let (url, tasks) = (arguments.next().ok_or("a URL")?, arguments.next().ok_or("a count")?);
        return work(&url, tasks.parse()?);
    }
    let mut number = |or: u64| arguments.next().map_or(Ok(or), |text| text.parse());
    let (processes, tasks, stopped, all) = (number(4)?, number(500)?, number(10)?, number(60)?);
    let server = Etcd::start();
    let grants = Arc::new(AtomicU64::new(0));
    let workers = (0..processes).map(|_| start_worker(&server.url(), tasks, &grants));
    let workers = workers.collect::<Result<Vec<Child>, _>>()?;
    for second in 1..=all {
        sleep(SECOND);
        println!("{second:3} s: {} grants", grants.swap(0, SeqCst));
        if second == BEFORE_SECONDS {
            println!("the server stops");
            server.servers()[0].pause();
        }
        if second == BEFORE_SECONDS + stopped {
            println!("the server goes on");
            server.servers()[0].resume();
        }
    }
    for mut worker in workers {
        worker.kill()?;
        worker.wait()?;
    }
    Ok(())
}

/// Starts a process that prints a line for each grant.
fn start_worker(url: &str, tasks: u64, grants: &Arc<AtomicU64>) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([WORKER, url, &tasks.to_string()]).stdout(Stdio::piped());
    let mut worker = command.spawn()?;
    let (output, grants) = (worker.stdout.take(), Arc::clone(grants));
    std::thread::spawn(move || {
        let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
        lines.map_while(Result::ok).for_each(|_| {
            grants.fetch_add(1, SeqCst);
        });
    });
    Ok(worker)
}

fn work(url: &str, tasks: u64) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let keeper = Connect::to(url).connect().await?;
        for _ in 0..tasks {
            let mutex = keeper.mutex("overload");
            tokio::spawn(async move {
                loop {
                    match mutex.lock().await {
                        Ok(guard) => {
                            println!("granted");
                            tokio::time::sleep(HOLD).await;
                            if let Err(error) = guard.release().await {
                                eprintln!("could not release: {error}");
                            }
                        }
                        Err(error) => eprintln!("could not lock: {error}"),
                    }
                }
            });
        }
        std::future::pending().await
    })
}
