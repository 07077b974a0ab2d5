//! The faults, as they are done to the workers, their networks and the servers of a run.

use super::{Stage, Strike, WAITING};
use crate::clients::{MAIN, steady};
use crate::fault::{Fault, OF_CLIENTS, OF_NETWORKS};
use crate::judge::Finding;
use crate::outcome::{Break, Outcome, SOON};
use crate::process::{NONE, Worker, limit_files};
use crate::resource::CLIENTS_PER_PROCESS;
use crate::{Error, Result};
use crate::{apart, isolation};
use lockkeeper_core::engine::Clock;
use lockkeeper_testkit::{Proxy, Server};
use rand::RngExt;
use rustix::process::Pid;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Members may take five seconds until they miss their leader.
const ISOLATION: Duration = Duration::from_secs(10);

/// How often the main lock is granted after an overload before its time is over: a wedged queue grants a handful, one that
/// works grants thousands.
const RECOVERED: u64 = 100;

const TRIES: u32 = 10;
/// How much of a hold is left at least when most faults strike.
const A_WHILE: Duration = Duration::from_millis(250);

impl Stage<'_> {
    /// Strikes once, and waits until everybody is served again.
    pub(super) fn strike(&mut self, fault: Fault) -> Result<()> {
        // A server may free the lock after a time of its own: its holder must not have ended by itself before.
        let left = if fault == Fault::CutPackets { self.plan.ttl.mul_f64(0.8) } else { A_WHILE };
        let victim = self.victim(left);
        thread::sleep(Duration::from_millis(self.random.random_range(0..100)));
        let everybody = self.random.random_ratio(1, 3);
        let whom = match fault {
            _ if OF_NETWORKS.contains(&fault) && everybody => "every worker".to_owned(),
            _ if OF_NETWORKS.contains(&fault)
                || OF_CLIENTS.contains(&fault)
                || matches!(fault, Fault::Unfenced | Fault::PauseShort | Fault::CutPackets) =>
            {
                format!("worker {}", self.workers[victim].task.process)
            }
            _ => String::new(),
        };
        let from_ns = Clock::Boot.now().as_nanos();
        let chosen = if everybody { None } else { Some(victim) };
        match fault {
            Fault::PauseShort => {
                self.workers[victim].pause();
                thread::sleep(self.plan.ttl * 2 / 5);
                self.workers[victim].resume();
            }
            Fault::ClientFiles => {
                let pid = self.workers[victim].pid();
                let before = limit_files(pid, NONE)?;
                self.strike_network(Fault::Reset, Some(victim));
                self.let_pass();
                limit_files(pid, before)?;
            }
            Fault::Pause | Fault::Unfenced => {
                self.workers[victim].pause();
                let paused = Instant::now();
                self.let_pass();
                if fault == Fault::Unfenced {
                    // Some servers keep a session for longer than the TTL: it goes on once another one has written.
                    self.resource.is_written(MAIN, paused, self.bound());
                }
                self.workers[victim].resume();
            }
            Fault::Kill => {
                self.workers[victim].kill();
                let killed = self.workers.remove(victim);
                self.dead.push(killed);
                self.add_worker()?;
            }
            Fault::Block => {
                let time = self.time();
                self.workers[victim].block(time);
                thread::sleep(time);
            }
            Fault::Cancels => thread::sleep(self.time() * 2),
            Fault::Waiters => thread::sleep(WAITING),
            Fault::Overload => {
                thread::sleep(WAITING / 2);
                self.strike_servers(Fault::ServerPause)?;
            }
            Fault::CutPackets => {
                if let Some(network) = &self.workers[victim].network {
                    isolation::cut_worker(network)?;
                }
                self.let_pass();
                isolation::heal()?;
            }
            Fault::FullDisk => self.fill_disk()?,
            Fault::ClockTurns => self.turn_server_clock()?,
            Fault::ClientClock => {
                for seconds in [3600, -3600, 0] {
                    self.set_clock(seconds)?;
                    self.let_pass();
                }
            }
            Fault::ClockForward | Fault::ClockBack => self.move_server_clock(fault, victim)?,
            fault if OF_NETWORKS.contains(&fault) => self.strike_network(fault, chosen),
            fault => self.strike_servers(fault)?,
        }
        let until_ns = Clock::Boot.now().as_nanos();
        let is_stuck = self.plan.outcome == Outcome::KnownBreak(Break::Stuck);
        // To see how much too long it takes, unless it takes for ever.
        let extra = if is_stuck { Duration::ZERO } else { SOON };
        let (healed, limit) = (Instant::now(), self.bound() + extra);
        let is_used = self.resource.is_used(MAIN, healed, limit)
            && (fault != Fault::Overload
                || self.resource.is_granted(MAIN, RECOVERED, limit.saturating_sub(healed.elapsed())));
        let is_back = (is_used || !is_stuck) && self.resource.beat(&self.numbers(), healed, limit);
        let waited = healed.elapsed();
        if !is_used || !is_back || waited > self.bound() {
            let what = match fault {
                _ if is_used => "a worker's own lock",
                Fault::Overload => "the main lock, a hundred times,",
                _ => "the main lock",
            };
            let mut late = Finding::late(until_ns, what, waited, fault);
            late.text.extend(self.workers.iter().map(Worker::error));
            self.findings.push(late);
        }
        if is_used && is_back && !self.plan.fault.has_waiters() {
            let limit = (self.bound() + steady(self.plan.ttl) * 2).saturating_sub(waited);
            if !self.resource.survives(&self.numbers(), healed, limit) {
                let text = format!("a worker lost every hold of {:?} after {fault}", steady(self.plan.ttl));
                self.findings.push(Finding::liveness(until_ns, text));
            }
        }
        self.strikes.push(Strike { fault, whom, from_ns, until_ns, waited });
        Ok(())
    }

    /// The worker that is in the middle of a hold and means to go on for this time, as far as there is one.
    fn victim(&mut self, left: Duration) -> usize {
        let holder =
            self.resource.long_hold(left, self.plan.ttl * 4).map(|hold| hold.client / CLIENTS_PER_PROCESS);
        let found = self.workers.iter().position(|worker| Some(worker.task.process) == holder);
        found.unwrap_or_else(|| self.random.random_range(0..self.workers.len()))
    }

    /// Longer than the TTL.
    fn time(&mut self) -> Duration {
        self.plan.ttl.mul_f64(self.random.random_range(1.2..1.8))
    }

    fn let_pass(&mut self) {
        thread::sleep(self.time());
    }

    fn strike_network(&mut self, fault: Fault, victim: Option<usize>) {
        let time = self.time();
        let delay = Duration::from_millis(self.random.random_range(50..200));
        let pauses: Vec<Duration> =
            (0..3).map(|_| Duration::from_millis(self.random.random_range(1..300))).collect();
        let chosen =
            self.workers.iter().enumerate().filter(|(index, _)| victim.is_none_or(|victim| victim == *index));
        let networks: Vec<_> = chosen.filter_map(|(_, worker)| worker.network.as_ref()).collect();
        for network in &networks {
            network.each(|proxy| match fault {
                Fault::Cut => proxy.cut(),
                Fault::CutRequests => proxy.cut_requests(),
                Fault::CutReplies => proxy.cut_replies(),
                Fault::Delay => proxy.delay(delay),
                Fault::HalfOpen => proxy.half_open(),
                Fault::HalfOpenClients => proxy.half_open_for_clients(),
                Fault::Tear => proxy.tear(),
                _ => proxy.reset(),
            });
        }
        match fault {
            Fault::Reset | Fault::Tear => {
                let again = if fault == Fault::Tear { Proxy::tear } else { Proxy::reset };
                for pause in pauses {
                    thread::sleep(pause);
                    networks.iter().for_each(|network| network.each(again));
                }
            }
            Fault::HalfOpen | Fault::HalfOpenClients => {}
            _ => thread::sleep(time),
        }
        networks.iter().for_each(|network| network.each(Proxy::heal));
    }

    fn strike_servers(&mut self, fault: Fault) -> Result<()> {
        let servers =
            self.plan.servers.ok_or_else(|| Error::new(format!("{fault} needs servers of our own")))?;
        let time = self.time();
        let moment = Duration::from_millis(self.random.random_range(0..400));
        let mut all = servers.all();
        match fault {
            Fault::ServerPause => {
                all.iter().for_each(|server| server.pause());
                thread::sleep(time);
                all.iter().for_each(|server| server.resume());
            }
            Fault::ServerKill | Fault::ServerStop => {
                let end = if fault == Fault::ServerKill { Server::kill } else { Server::stop };
                all.iter().for_each(|server| end(server));
                thread::sleep(moment);
                servers.restart(&all);
            }
            Fault::ServerPids => {
                for server in all {
                    let pid = server.pid();
                    // A thread that somebody starts at that moment takes it away.
                    for _ in 0..TRIES {
                        server.kill();
                        thread::sleep(moment);
                        apart::set_next_pid(pid)?;
                        server.restart();
                        if server.pid() == pid {
                            break;
                        }
                    }
                    if server.pid() != pid {
                        return Err(Error::new("the server has another process id"));
                    }
                }
            }
            Fault::ServerFiles => {
                let pids = || all.iter().filter_map(|server| Pid::from_raw(server.pid().cast_signed()));
                let before: Vec<_> = pids().map(|pid| limit_files(pid, NONE)).collect::<io::Result<_>>()?;
                self.workers.iter().filter_map(|worker| worker.network.as_ref()).for_each(|network| {
                    network.each(Proxy::reset);
                });
                thread::sleep(time);
                pids().zip(before).try_for_each(|(pid, before)| limit_files(pid, before).map(|_| ()))?;
            }
            Fault::NodesKill | Fault::NodesForget => {
                let majority = all.len() / 2 + 1;
                let count = if fault == Fault::NodesKill { all.len() - majority } else { majority };
                while all.len() > count {
                    all.swap_remove(self.random.random_range(0..all.len()));
                }
                all.iter().for_each(|server| server.kill());
                thread::sleep(if fault == Fault::NodesKill { time } else { Duration::ZERO });
                servers.restart(&all);
            }
            Fault::LeaderCut => {
                let leader = servers.leader().ok_or_else(|| Error::new("there is no leader"))?;
                isolation::cut_member(leader, &all)?;
                thread::sleep(ISOLATION);
                let is_replaced = servers.leader().is_some_and(|leads| leads.pid() != leader.pid());
                isolation::heal()?;
                if !is_replaced {
                    return Err(Error::new("the others chose no leader of their own"));
                }
            }
            Fault::LeaderKill | Fault::LeaderPause | Fault::Failover => {
                let leader = servers.leader().ok_or_else(|| Error::new("there is no leader"))?;
                match fault {
                    Fault::LeaderPause => leader.pause(),
                    _ => leader.kill(),
                }
                thread::sleep(time);
                match fault {
                    Fault::LeaderPause if self.plan.outcome.documented().is_some() => {
                        self.resume_deaf(leader);
                    }
                    Fault::LeaderPause => leader.resume(),
                    Fault::Failover if !servers.is_replaced(leader) => {
                        return Err(Error::new("no replica took the master's place"));
                    }
                    _ => leader.restart(),
                }
            }
            _ => return Err(Error::new(format!("{fault} is not done to servers"))),
        }
        Ok(())
    }

    /// Lets a leader go on that ends leases of others then, while a holder hears nothing of it: else the holder may learn of it
    /// before somebody else is granted the lock.
    fn resume_deaf(&mut self, leader: &Server) {
        // Servers may keep a lease for longer than the TTL.
        self.let_pass();
        let victim = self.victim(A_WHILE);
        let network = self.workers[victim].network.as_ref();
        network.inspect(|network| network.each(Proxy::cut_replies));
        leader.resume();
        thread::sleep(self.plan.ttl);
        network.inspect(|network| network.each(Proxy::heal));
    }

    /// Servers that end because of it are started again once there is room.
    fn fill_disk(&mut self) -> Result<()> {
        apart::fill_disk()?;
        self.let_pass();
        apart::empty_disk()?;
        if let Some(servers) = self.plan.servers {
            let ended: Vec<_> = servers.all().into_iter().filter(|server| !server.is_running()).collect();
            servers.restart(&ended);
        }
        Ok(())
    }

    /// Ends at the true time, later than that of the turn before: what was kept for too long is freed.
    fn turn_server_clock(&mut self) -> Result<()> {
        for seconds in [3600, -3600, 3600, -3600, 0] {
            if seconds > 0 {
                // A jump ahead frees what is held.
                self.victim(A_WHILE);
            }
            self.set_clock(seconds)?;
            self.let_pass();
        }
        Ok(())
    }

    fn set_clock(&mut self, seconds: i64) -> Result<()> {
        self.ahead = seconds;
        self.shim.as_ref().map_or(Ok(()), |shim| shim.set(seconds))
    }

    /// Backwards, a holder is killed besides: what the server keeps for too long is a dead claim.
    fn move_server_clock(&mut self, fault: Fault, victim: usize) -> Result<()> {
        let step = if fault == Fault::ClockForward { 3600 } else { -3600 };
        self.set_clock(self.ahead + step)?;
        if fault == Fault::ClockBack {
            self.workers[victim].kill();
            let killed = self.workers.remove(victim);
            self.dead.push(killed);
            self.add_worker()?;
        } else {
            self.let_pass();
        }
        Ok(())
    }
}
