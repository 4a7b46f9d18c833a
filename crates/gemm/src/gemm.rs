//! [`Gemm`]: GEMMs on device memory. Plan once, run often: [`Gemm::prepare`] compiles and loads, [`Gemm::run`] with a prepared
//! plan patches addresses and launches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pgemm_ir::Kernel;
use pgemm_kernels::{
    GemmKernel, Quantity, RepackKernel, RepackSpec, RunValue, RunValues, Spec, TMA_ALIGN_BYTES,
    Workspace,
};
use pgemm_plan::{
    Batch, Choice, Config, Major, OperandAccess, OperandAlignment, OperandLayout, Plan,
    PlannedProblem, Problem, Repacks, Split,
};
use pgemm_ptx::ResourceReport;

use crate::cache::{CacheKey, JitCache, Outcome};
use crate::driver::{
    self, Device, DeviceBuffer, Function, L2Promotion, LaunchConfig, PreparedArguments, StreamRef,
};
use crate::error::{Error, Result};
use crate::repack::{LoadedRepack, RepackLaunches, RepackedOperands};
use crate::tuned::Picks;
use crate::work::{Pointers, factor_of_products, in_kernel_order, moves_by_tma, work};
use crate::workspace::{Account, Workspaces};

/// Repacked operands begin at a multiple of it in a workspace, behind what split tiles need.
const OPERANDS_ALIGN: u64 = 1024;

/// Device memory that the caller gives a launch as its workspace: see [`Gemm::run_prepared_with_workspace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerWorkspace {
    /// Where it begins: a multiple of [`ALIGN`](Self::ALIGN).
    pub address: u64,
    /// Its size.
    pub bytes: u64,
}

impl CallerWorkspace {
    /// Bytes that its address must be a multiple of.
    pub const ALIGN: u64 = 256;
}

impl From<&DeviceBuffer> for CallerWorkspace {
    fn from(buffer: &DeviceBuffer) -> Self {
        CallerWorkspace { address: buffer.address(), bytes: buffer.bytes() as u64 }
    }
}

/// A GEMM for one device and one [`Config`]. Cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Gemm(Arc<Inner>);

struct Inner {
    device: Device,
    config: Config,
    cache: Arc<JitCache>,
    /// What was tuned on this device.
    picks: Arc<Picks>,
    kernels: Mutex<HashMap<Spec, Loaded>>,
    repacks: Mutex<HashMap<RepackSpec, Arc<LoadedRepack>>>,
    prepared: Mutex<HashMap<PlanKey, Arc<Prepared>>>,
    /// Sixteen zero bytes: what TMA reads of operands without depth.
    zeros: DeviceBuffer,
    /// What workspaces hold, over all problems.
    account: Arc<Account>,
    stream: driver::Stream,
    /// The one that computes blocks of products of the host's.
    by_blocks: Mutex<Option<Gemm>>,
}

/// A kernel on the device, or why it is not used.
#[derive(Clone)]
enum Loaded {
    Ready(Arc<LoadedKernel>),
    /// The driver's JIT spills or serialises it.
    Unclean(ResourceReport),
}

struct LoadedKernel {
    gemm: GemmKernel,
    /// The parameters that each run sets.
    run_parameters: Vec<(usize, Quantity)>,
    function: Function,
    /// Clusters that run at once.
    resident_clusters: u32,
}

/// What of a problem a prepared launch depends on: all but the addresses and scalars.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PlanKey {
    extents: [usize; 3],
    a: OperandLayout,
    b: OperandLayout,
    alignment: OperandAlignment,
    d_major: Major,
    /// C's, where it is read.
    c_leading_dimension: Option<usize>,
    d_leading_dimension: usize,
    /// That of C is 0 where it is not read.
    batch: Batch,
}

impl PlanKey {
    fn new(problem: &Problem, alignment: OperandAlignment) -> Self {
        let batch = problem.batch.normalised();
        PlanKey {
            extents: [problem.m, problem.n, problem.k],
            a: problem.a,
            b: problem.b,
            alignment,
            d_major: problem.d_major,
            c_leading_dimension: (problem.beta != 0.0).then_some(problem.c_leading_dimension),
            d_leading_dimension: problem.d_leading_dimension,
            batch: Batch { c: if problem.beta == 0.0 { 0 } else { batch.c }, ..batch },
        }
    }
}

/// A problem that is ready to launch.
pub struct Prepared {
    problem: Problem,
    /// As the kernel sees it.
    planned: PlannedProblem,
    plan: Plan,
    kernel: Arc<LoadedKernel>,
    launch: LaunchConfig,
    patched: Mutex<Patched>,
    outcome: Option<Outcome>,
}

/// What each run changes.
struct Patched {
    arguments: PreparedArguments,
    workspaces: Workspaces,
    /// The repack launches before, where operands are not read in place.
    repack: Option<RepackLaunches>,
    /// Where the repacked operands begin in a workspace.
    operands: u64,
}

impl Prepared {
    /// What happened in the cache; `None` where the kernel was loaded already.
    pub fn cache_outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// How the problem is computed.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes of device memory held for partial sums and for repacked operands; 0 where every tile is computed
    /// whole and both operands are read in place. Each stream on which the problem
    /// was run, and each stream of a capture, has its own: what a capture used goes to the next stream or capture once the
    /// graph and its executables are gone, the rest is freed with this problem.
    pub fn workspace_bytes(&self) -> u64 {
        lock(&self.patched).workspaces.bytes()
    }

    /// Bytes of the workspace of one launch; 0 where it needs none.
    pub fn workspace_required_bytes(&self) -> u64 {
        lock(&self.patched).workspaces.size().bytes
    }

    /// The problem, with the scalars that it was prepared with.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl Gemm {
    /// A GEMM on `device`. Compiles nothing yet. Problems that were tuned use what was found (see [`crate::tune::Picks`])
    /// where the config gives nothing but types.
    ///
    /// # Errors
    /// [`Error::Kernel`] if a knob is impossible whatever the problem, [`Error::OutOfMemory`].
    pub fn create(device: &Device, config: Config) -> Result<Self> {
        Self::with_cache(device, config, JitCache::from_environment())
    }

    /// Like [`create`](Self::create), with a cache of the caller's.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn with_cache(device: &Device, config: Config, cache: JitCache) -> Result<Self> {
        let picks = Picks::from_environment(device.properties());
        Self::with_picks(device, config, cache, picks)
    }

    /// Like [`with_cache`](Self::with_cache), with what was tuned in place of what the environment names.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn with_picks(
        device: &Device,
        config: Config,
        cache: JitCache,
        picks: Arc<Picks>,
    ) -> Result<Self> {
        Self::with_shared(device, config, Arc::new(cache), picks)
    }

    fn with_shared(
        device: &Device,
        config: Config,
        cache: Arc<JitCache>,
        picks: Arc<Picks>,
    ) -> Result<Self> {
        Plan::check_config(&config, device.properties().sm_count)?;

        let stream = driver::Stream::new(device)?;
        let zeros =
            DeviceBuffer::from_host(device, &[0; TMA_ALIGN_BYTES as usize], stream.as_ref())?;
        Ok(Gemm(Arc::new(Inner {
            device: device.clone(),
            config,
            cache,
            picks,
            kernels: Mutex::default(),
            repacks: Mutex::default(),
            prepared: Mutex::default(),
            zeros,
            account: Arc::default(),
            stream,
            by_blocks: Mutex::default(),
        })))
    }

    /// The one that computes blocks of products of the host's: tiles are whole along k unless the config says otherwise, so that sums
    /// depend on nothing but k, and workspaces are the caller's.
    pub(crate) fn by_blocks(&self) -> Result<Gemm> {
        let mut by_blocks = lock(&self.0.by_blocks);
        if let Some(gemm) = &*by_blocks {
            return Ok(gemm.clone());
        }
        let Inner { device, config, cache, picks, .. } = &*self.0;
        let config = Config { split: config.split.or(Some(Split::Whole)), ..config.clone() };
        let gemm = Self::with_shared(device, config, cache.clone(), picks.clone())?;
        gemm.set_workspace_limit(Some(0));
        *by_blocks = Some(gemm.clone());
        Ok(gemm)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The config.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// A stream of this `Gemm`'s own, for callers that bring none. It does not synchronise with the legacy default stream.
    pub fn stream(&self) -> StreamRef<'_> {
        self.0.stream.as_ref()
    }

    /// What is known of kernels from earlier processes.
    pub fn cache(&self) -> &JitCache {
        &self.0.cache
    }

    /// Plans a problem, compiles and loads its kernel where that has not happened yet, packs its arguments, and allocates a
    /// workspace where the plan splits tiles along k or repacks operands. Runs of this problem at addresses that are
    /// multiples of 16 then only patch addresses and launch.
    ///
    /// # Errors
    /// The problem is malformed, no kernel can compute it, memory for the workspace is lacking, or the driver refuses; [`Error::UncleanKernel`] where it spoils the kernel that the config names,
    /// [`Error::NoCleanKernel`] where it spoils all that the planner could take.
    pub fn prepare(&self, problem: &Problem) -> Result<Arc<Prepared>> {
        self.prepare_for(problem, OperandAlignment::ALIGNED)
    }

    /// Like [`prepare`](Self::prepare), for operands at addresses that are as far off multiples of 16 as these, and as others
    /// that are multiples of it.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_at(&self, problem: &Problem, pointers: &Pointers) -> Result<Arc<Prepared>> {
        problem.validate()?;
        self.prepare_for(problem, alignment(problem, &self.0.config, pointers))
    }

    fn prepare_for(&self, problem: &Problem, alignment: OperandAlignment) -> Result<Arc<Prepared>> {
        let key = PlanKey::new(problem, alignment);
        if let Some(prepared) = lock(&self.0.prepared).get(&key) {
            return Ok(prepared.clone());
        }
        let Inner { device, config, picks, .. } = &*self.0;
        let sms = device.properties().sm_count;
        let plans = Plan::candidates_with(problem, config, sms, &**picks, alignment)?;
        let prepared = first_clean(config, plans, |plan| {
            let planned = PlannedProblem::with_accesses(problem, config, plan.accesses);
            self.prepare_plan(problem, planned, plan)
        })?;
        Ok(lock(&self.0.prepared).entry(key).or_insert_with(|| Arc::new(prepared)).clone())
    }

    /// Like [`prepare`](Self::prepare), for exactly this choice. Its kernel stays loaded, and nothing else is remembered.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare); the choice does not fit the problem or this config's types.
    pub fn prepare_choice(&self, problem: &Problem, choice: Choice) -> Result<Prepared> {
        let Config { dtype, b, epilogue, .. } = self.0.config;
        let output = Some(self.0.config.output_dtype());
        let config = Config { dtype, b, output, epilogue, ..Config::for_choice(choice) };
        let sms = self.0.device.properties().sm_count;
        let plans = Plan::candidates(problem, &config, sms)?;
        first_clean(&config, plans, |plan| {
            let planned = PlannedProblem::with_accesses(problem, &config, plan.accesses);
            self.prepare_plan(problem, planned, plan)
        })
    }

    /// A plan, ready to launch.
    ///
    /// # Errors
    /// [`Error::UncleanKernel`] where the driver spoils its kernel, and what else keeps it from being launched.
    fn prepare_plan(
        &self,
        problem: &Problem,
        planned: PlannedProblem,
        mut plan: Plan,
    ) -> Result<Prepared> {
        let spec = plan.spec;
        let (kernel, outcome) = match self.load(&spec)? {
            (Loaded::Ready(kernel), outcome) => (kernel, outcome),
            (Loaded::Unclean(report), _) => {
                return Err(Error::UncleanKernel { spec, report: report.into() });
            }
        };
        plan.clusters = plan.clusters.min(kernel.resident_clusters.max(1));
        plan.waves = plan.tiles as f64 / f64::from(plan.clusters);
        self.pack(problem, planned, plan, kernel, outcome)
    }

    /// Enqueues D = alpha·A·B + beta·C on `stream` and returns. Prepares the problem first where that has not happened, which
    /// at addresses of operands that are no multiples of 16 means [`prepare_at`](Self::prepare_at).
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare); an address that is null or no multiple of an element's size; [`Error::CaptureUnprepared`] if the stream is being
    /// captured and the problem was not prepared.
    ///
    /// # Safety
    /// The addresses must be those of matrices on this device as the problem describes them, alive and not otherwise written
    /// until the work on `stream` has been done. `stream` must belong to the device's context. Where it is being captured,
    /// matrices and this `Gemm` must live until the last replay has been done, and executables made from one graph must not
    /// run at the same time.
    pub unsafe fn run(
        &self,
        problem: &Problem,
        pointers: &Pointers,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        if problem.is_empty() {
            return Ok(problem.validate()?);
        }
        let prepared = self.prepared_for_run(problem, pointers, stream)?;
        // SAFETY: the caller vouches for addresses and stream.
        unsafe { self.run_prepared(&prepared, problem.alpha, problem.beta, pointers, stream) }
    }

    /// The problem as it was prepared, or prepared now.
    fn prepared_for_run(
        &self,
        problem: &Problem,
        pointers: &Pointers,
        stream: StreamRef<'_>,
    ) -> Result<Arc<Prepared>> {
        let alignment = alignment(problem, &self.0.config, pointers);
        let known = lock(&self.0.prepared).get(&PlanKey::new(problem, alignment)).cloned();
        match known {
            Some(prepared) => Ok(prepared),
            None if stream.is_capturing()? => Err(Error::CaptureUnprepared),
            None => self.prepare_for(problem, alignment),
        }
    }

    /// Enqueues a prepared problem with these scalars and addresses: patches them and launches. At addresses of operands that
    /// are further off multiples of 16 than it was prepared for, it is prepared anew. Where the plan splits tiles
    /// along k or repacks operands, the first run on a stream or in a capture takes the workspace that [`prepare`](Self::prepare) left, or
    /// allocates one and waits for its counters to be zeroed; captures do not forbid that. No other run allocates or waits.
    ///
    /// # Errors
    /// An address that is null or no multiple of an element's size; [`Error::CaptureUnprepared`] if the stream is being
    /// captured and the problem was not prepared for such addresses; [`Error::PreparedWithoutC`] if beta isn't 0 and was when the problem was prepared; scalars
    /// of an integer product that are no 32-bit integers, or that are beyond binary32 where the product is not of f64;
    /// [`Error::OutOfMemory`] where a workspace is allocated, [`Error::WorkspaceLimit`] where it may not be; a launch that the
    /// driver refuses.
    ///
    /// # Safety
    /// As [`run`](Self::run), for the problem that was prepared, by this `Gemm`.
    pub unsafe fn run_prepared(
        &self,
        prepared: &Prepared,
        alpha: f64,
        beta: f64,
        pointers: &Pointers,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        // SAFETY: the caller's promises are the same.
        unsafe { self.enqueue(prepared, alpha, beta, pointers, None, stream) }
    }

    /// Like [`run_prepared`](Self::run_prepared), with a workspace of the caller's of
    /// [`workspace_required_bytes`](Prepared::workspace_required_bytes), whatever it holds: the part with counters is set to
    /// zero on the stream before each launch. Nothing is allocated. Problems are best prepared by
    /// [`prepare_at`](Self::prepare_at) where operands lie at no multiples of 16: at such addresses a problem that was not needs
    /// what it needs when prepared anew.
    ///
    /// # Errors
    /// As [`run_prepared`](Self::run_prepared); [`Error::Workspace`] where it is too small or not aligned.
    ///
    /// # Safety
    /// As [`run_prepared`](Self::run_prepared). The workspace must be memory of this device that nobody else uses until the work
    /// on `stream` has been done, or, captured, while a replay runs.
    pub unsafe fn run_prepared_with_workspace(
        &self,
        prepared: &Prepared,
        alpha: f64,
        beta: f64,
        pointers: &Pointers,
        workspace: CallerWorkspace,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        // SAFETY: the caller's promises are the same.
        unsafe { self.enqueue(prepared, alpha, beta, pointers, Some(workspace), stream) }
    }

    /// # Safety
    /// As the two functions above.
    unsafe fn enqueue(
        &self,
        prepared: &Prepared,
        alpha: f64,
        beta: f64,
        pointers: &Pointers,
        own: Option<CallerWorkspace>,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let reads_c = beta != 0.0;
        if reads_c && prepared.problem.beta == 0.0 {
            return Err(Error::PreparedWithoutC);
        }
        let output = self.0.config.output_dtype();
        prepared.problem.with_alpha(alpha).with_beta(beta).check_scalars(output)?;
        let reads_operands = prepared.problem.k > 0;
        let adds_bias = self.0.config.epilogue.bias().is_some();
        let alpha = factor_of_products(prepared.problem.k, alpha);
        let ([a, b], output) = (self.0.config.operands(), self.0.config.output_dtype());
        for (matrix, address, element, read) in [
            ("A", pointers.a, a, reads_operands),
            ("B", pointers.b, b, reads_operands),
            ("C", pointers.c, output, reads_c),
            ("D", pointers.d, output, true),
            ("the bias", pointers.bias, self.0.config.bias_dtype(), adds_bias),
        ] {
            let align = u64::from(element.bytes());
            if read && (address == 0 || !address.is_multiple_of(align)) {
                return Err(Error::Address { matrix, address, align });
            }
        }
        let Prepared { planned, plan, kernel, .. } = prepared;
        let Pointers { a, b, c, d, .. } = *pointers;
        let [a, b] = planned.in_order([a, b]);
        let unaligned = |address: u64, access| {
            access == OperandAccess::InPlace && !address.is_multiple_of(TMA_ALIGN_BYTES)
        };
        if reads_operands && (unaligned(a, plan.accesses.a) || unaligned(b, plan.accesses.b)) {
            let problem = prepared.problem.with_alpha(alpha).with_beta(beta);
            let prepared = self.prepared_for_run(&problem, pointers, stream)?;
            // SAFETY: the caller's promises are the same.
            return unsafe { self.enqueue(&prepared, alpha, beta, pointers, own, stream) };
        }
        // Entered once here rather than in each call below.
        let _current = self.0.device.enter()?;
        let mut patched = lock(&prepared.patched);
        let Patched { arguments, workspaces, repack, operands } = &mut *patched;
        let workspace = match own {
            // SAFETY: the caller vouches for the memory.
            Some(own) => unsafe { given(own, workspaces.size(), stream) }?,
            None => match workspaces.address(stream) {
                Err(Error::WorkspaceLimit { .. }) => {
                    workspaces.trim()?;
                    self.trim_idle()?;
                    workspaces.address(stream)
                }
                address => address,
            }?,
        };
        let RepackedOperands { operands: [a, b], scales } = match repack {
            // SAFETY: the caller vouches for the operands and the stream, and the workspace has room for the copies.
            Some(repack) => unsafe { repack.enqueue([a, b], workspace + *operands, stream) }?,
            None if reads_operands => RepackedOperands { operands: [a, b], scales: None },
            None => RepackedOperands { operands: [self.0.zeros.address(); 2], scales: None },
        };
        let (a, b) = in_kernel_order(plan, a, b);
        let [a_scales, b_scales] = scales.unwrap_or_default();
        let (a_scales, b_scales) = in_kernel_order(plan, a_scales, b_scales);
        let c = if reads_c { c } else { d };
        let spec = kernel.gemm.spec();
        let run = RunValues {
            matrices: [a, b, c, d],
            scales: [a_scales, b_scales],
            bias: pointers.bias,
            workspace,
            alpha,
            beta,
            stored_by_threads: !moves_by_tma(spec, &planned.problem, reads_c, [c, d]),
        };
        for &(index, quantity) in &kernel.run_parameters {
            match kernel.gemm.signature.run_value(quantity, &run) {
                Some(RunValue::Address(address)) => arguments.set_address(index, address)?,
                Some(RunValue::Number(number)) => arguments.set(index, &number)?,
                None => {}
            }
        }
        // SAFETY: the arguments match the kernel's parameters, the caller vouches for addresses and stream.
        unsafe { driver::launch(&prepared.kernel.function, &prepared.launch, arguments, stream) }
    }

    /// Waits until all is done that was enqueued on this `Gemm`'s own [`stream`](Self::stream). What it enqueued on streams of
    /// the caller's is waited for there, by [`StreamRef::synchronize`], or by [`Device::synchronize`] for all of them.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of any earlier work.
    pub fn sync(&self) -> Result<()> {
        self.0.stream.synchronize()
    }

    /// Bytes of device memory that the workspaces of all its problems hold.
    pub fn workspace_bytes(&self) -> u64 {
        self.0.account.held()
    }

    /// Sets the most bytes that the workspaces of all its problems may hold together; `None`, as at first, sets no limit. A run that
    /// needs more than is left frees what other problems and streams hold, after their launches, and fails with
    /// [`Error::WorkspaceLimit`] where that is not enough. What graphs may replay is never freed. What is held beyond a new limit
    /// stays until then, or until [`trim`](Self::trim).
    pub fn set_workspace_limit(&self, bytes: Option<u64>) {
        self.0.account.set_limit(bytes.unwrap_or(u64::MAX));
    }

    /// Gives memory back: frees the workspaces that no graph may use, after the launches that use them, and forgets prepared
    /// problems that nobody else holds. Kernels stay loaded. Returns the bytes of device memory that were freed.
    ///
    /// # Errors
    /// [`Error::Driver`] if the driver refuses.
    pub fn trim(&self) -> Result<u64> {
        let before = self.0.account.held();
        for prepared in self.all_prepared() {
            lock(&prepared.patched).workspaces.trim()?;
        }
        lock(&self.0.prepared).retain(|_, prepared| {
            Arc::strong_count(prepared) > 1 || prepared.workspace_bytes() > 0
        });
        Ok(before.saturating_sub(self.0.account.held()))
    }

    /// Frees the workspaces of problems that no thread enqueues just now.
    #[cold]
    fn trim_idle(&self) -> Result<()> {
        for prepared in self.all_prepared() {
            // Who holds one of these locks may be here too, and wait for ours.
            if let Ok(mut patched) = prepared.patched.try_lock() {
                patched.workspaces.trim()?;
            }
        }
        Ok(())
    }

    /// Nobody waits for a problem's lock while holding that of the list.
    fn all_prepared(&self) -> Vec<Arc<Prepared>> {
        lock(&self.0.prepared).values().cloned().collect()
    }

    /// The kernel of a spec, compiled and loaded where it isn't yet, and what happened in the cache then.
    fn load(&self, spec: &Spec) -> Result<(Loaded, Option<Outcome>)> {
        if let Some(loaded) = lock(&self.0.kernels).get(spec) {
            return Ok((loaded.clone(), None));
        }
        let gemm = GemmKernel::build(spec)?;
        let kernel = &gemm.kernel;
        let (compiled, outcome) = self.compile(&spec.to_string(), kernel)?;
        let loaded = match compiled {
            Ok(function) => {
                let launch = LaunchConfig::of(kernel, [kernel.cluster, 1, 1]);
                let resident_clusters = driver::max_active_clusters(&function, &launch)?;
                let run_parameters = gemm.signature.run_parameters();
                Loaded::Ready(Arc::new(LoadedKernel {
                    gemm,
                    run_parameters,
                    function,
                    resident_clusters,
                }))
            }
            Err(report) => Loaded::Unclean(report),
        };
        lock(&self.0.kernels).insert(*spec, loaded.clone());
        Ok((loaded, Some(outcome)))
    }

    /// A resident kernel, and how many CTAs of it run at once.
    pub(crate) fn load_resident(&self, spec: Spec) -> Result<(GemmKernel, Function, u32)> {
        let gemm = GemmKernel::build(&spec)?;
        let kernel = &gemm.kernel;
        let function = match self.compile(&spec.to_string(), kernel)?.0 {
            Ok(function) => function,
            Err(report) => {
                let report = report.into();
                return Err(Error::UncleanKernel { spec, report });
            }
        };
        let launch = LaunchConfig::of(kernel, [1, 1, 1]);
        let resident = driver::max_active_clusters(&function, &launch)?;
        Ok((gemm, function, resident))
    }

    /// A repack kernel, compiled and loaded where it isn't yet.
    fn load_repack(&self, spec: RepackSpec) -> Result<Arc<LoadedRepack>> {
        if let Some(loaded) = lock(&self.0.repacks).get(&spec) {
            return Ok(loaded.clone());
        }
        let kernel = RepackKernel::build(spec)?;
        let name = kernel.kernel.name.clone();
        let function = match self.compile(&name, &kernel.kernel)?.0 {
            Ok(function) => function,
            Err(report) => return Err(Error::UncleanRepack { report: report.into() }),
        };
        let loaded = Arc::new(LoadedRepack { kernel, function });
        lock(&self.0.repacks).insert(spec, loaded.clone());
        Ok(loaded)
    }

    /// Compiles a kernel, or says why it is not to be used; and what happened in the cache.
    fn compile(
        &self,
        name: &str,
        kernel: &Kernel,
    ) -> Result<(std::result::Result<Function, ResourceReport>, Outcome)> {
        let device = &self.0.device;
        let ptx = pgemm_ptx::emit(kernel)?;
        let key = CacheKey::new(name, &ptx, device.properties());
        let mut module = None;
        let (report, outcome) = self.0.cache.get_or_build(&key, || {
            let (compiled, report) = driver::compile_with_report(device, &ptx)?;
            module = Some(compiled);
            Ok::<_, Error>(report)
        })?;
        if !report.is_clean() {
            tracing::warn!(
                "this driver does not compile {name} cleanly, so it is not used: {}",
                report.findings().join(", ")
            );
            return Ok((Err(report), outcome));
        }
        let module = match module {
            Some(module) => module,
            None => driver::compile(device, &ptx)?.0,
        };
        Ok((Ok(module.function(&kernel.name, kernel.smem_bytes())?), outcome))
    }

    fn pack(
        &self,
        problem: &Problem,
        planned: PlannedProblem,
        plan: Plan,
        kernel: Arc<LoadedKernel>,
        outcome: Option<Outcome>,
    ) -> Result<Prepared> {
        let zeros = self.0.zeros.address();
        // Addresses, the workspace's too, are patched before each launch.
        let nowhere = Pointers::new(zeros, zeros, zeros, zeros);
        let work = work(&planned.problem, &plan, &nowhere, 0);
        let of_kernel = kernel.gemm.workspace(&work);
        let repacks @ Repacks { bytes, .. } = planned.repacks();
        let operands = of_kernel.bytes.next_multiple_of(OPERANDS_ALIGN);
        // Both operands of every kernel have elements of one size.
        let kernels = repacks.kernels(self.0.config.dtype.bytes());
        let kernels: Vec<_> =
            kernels.into_iter().map(|spec| self.load_repack(spec)).collect::<Result<_>>()?;
        let repack = RepackLaunches::new(&self.0.device, &kernels, repacks)?;
        let size =
            if bytes == 0 { of_kernel } else { Workspace { bytes: operands + bytes, ..of_kernel } };
        let workspaces = Workspaces::new(&self.0.device, self.0.account.clone(), size)?;
        let bound = kernel.gemm.bind(&work);
        let maps = kernel.gemm.kernel.tensor_maps();
        let arguments =
            PreparedArguments::new(&self.0.device, &bound.arguments, maps, L2Promotion::default())?;
        let launch = LaunchConfig {
            // Kernels wait, by griddepcontrol.wait, before they touch global memory.
            programmatic_dependent_launch: plan.dependent_launch,
            ..LaunchConfig::of(&kernel.gemm.kernel, bound.grid)
        };
        Ok(Prepared {
            problem: *problem,
            planned,
            plan,
            kernel,
            launch,
            patched: Mutex::new(Patched { arguments, workspaces, repack, operands }),
            outcome,
        })
    }
}

/// The alignment of the operands at these addresses.
fn alignment(problem: &Problem, config: &Config, pointers: &Pointers) -> OperandAlignment {
    OperandAlignment::of(problem, config, [pointers.a, pointers.b])
}

/// A workspace of the caller's, with its counters set to zero on the stream; 0 where none is needed.
///
/// # Errors
/// [`Error::Workspace`]; [`Error::Driver`] if the call fails.
///
/// # Safety
/// It must be memory of the stream's device that nobody else uses until the stream has passed this.
unsafe fn given(own: CallerWorkspace, size: Workspace, stream: StreamRef<'_>) -> Result<u64> {
    let CallerWorkspace { address, bytes } = own;
    let Workspace { bytes: needed, zeroed } = size;
    if needed == 0 {
        return Ok(0);
    }
    let align = CallerWorkspace::ALIGN;
    if address == 0 || !address.is_multiple_of(align) || bytes < needed {
        return Err(Error::Workspace { address, found: bytes, needed, align });
    }
    // SAFETY: as the caller vouches.
    unsafe { driver::zero(address, zeroed, stream) }?;
    Ok(address)
}

/// What `prepare` makes of the first plan whose kernel the driver does not spoil.
///
/// # Errors
/// [`Error::UncleanKernel`] for a kernel that the config names, [`Error::NoCleanKernel`] where the planner has no other left;
/// any other error of `prepare`.
fn first_clean<T>(
    config: &Config,
    plans: impl IntoIterator<Item = Plan>,
    mut prepare: impl FnMut(Plan) -> Result<T>,
) -> Result<T> {
    for plan in plans {
        match prepare(plan) {
            Err(Error::UncleanKernel { .. }) if config.spec.is_none() => {}
            prepared => return prepared,
        }
    }
    Err(Error::NoCleanKernel { dtype: config.dtype })
}

/// A lock that a panicking holder cannot have left half-changed: what it guards is replaced whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, Major};

    /// The plans of `config` for a problem, given to a driver that spoils the first `spoilt` of them.
    fn picked(config: &Config, spoilt: usize) -> (Vec<Plan>, Result<Plan>) {
        let problem = Problem::new(4096, 4096, 4096, Major::K, Major::K);
        let plans: Vec<Plan> = Plan::candidates(&problem, config, 132).unwrap();
        let mut left = spoilt;
        let picked = first_clean(config, plans.clone(), |plan| {
            if left == 0 {
                return Ok(plan);
            }
            left -= 1;
            let report = ResourceReport { spill_store_bytes: 72, ..ResourceReport::default() };
            Err(Error::UncleanKernel { spec: plan.spec, report: report.into() })
        });
        (plans, picked)
    }

    #[test]
    fn the_planner_goes_on_to_the_first_kernel_that_the_driver_does_not_spoil() {
        let config = Config::new(Dtype::Bf16);
        let (plans, first) = picked(&config, 0);
        assert_eq!(first.unwrap(), plans[0]);
        assert_eq!(picked(&config, 2).1.unwrap(), plans[2]);
        let none = picked(&config, plans.len()).1;
        assert!(matches!(none, Err(Error::NoCleanKernel { dtype: Dtype::Bf16 })), "{none:?}");
    }

    #[test]
    fn a_kernel_that_was_asked_for_and_is_spoilt_is_named_with_what_the_driver_said() {
        let name = "bf16-kk-bf16-64x64x64-s10-w1-c1x1";
        let config = Config::for_spec(name.parse().unwrap());
        let (plans, picked) = picked(&config, 1);
        assert_eq!(plans.len(), 1);
        let message = picked.unwrap_err().to_string();
        assert!(message.contains(name) && message.contains("72 bytes spilled"), "{message}");
    }

    #[test]
    fn what_else_goes_wrong_ends_the_search() {
        let config = Config::new(Dtype::Bf16);
        let problem = Problem::new(64, 64, 64, Major::K, Major::K);
        let plans = Plan::candidates(&problem, &config, 132).unwrap();
        let ended = first_clean(&config, plans, |_| Err::<(), _>(Error::NoDevice));
        assert!(matches!(ended, Err(Error::NoDevice)), "{ended:?}");
    }
}
