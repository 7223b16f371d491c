"""SummaryWriter, under PyTorch's names and signatures: scalars, texts, images, figures, histograms.

Graphs of models, embeddings, meshes, sound, video and curves are not written.
"""

import itertools
import os
import socket
import threading
import time

from rushlight.utils.tensorboard import records as r
from rushlight.utils.tensorboard import summaries

_COUNT = itertools.count()


class FileWriter:
    """One event file in log_dir; events are written at once and flushed every max_queue events or
    flush_secs seconds, and at close().
    """

    def __init__(self, log_dir, max_queue=10, flush_secs=120, filename_suffix=""):
        log_dir = str(log_dir)
        os.makedirs(log_dir, exist_ok=True)
        name = (
            f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}."
            f"{os.getpid()}.{next(_COUNT)}{filename_suffix}"
        )
        self.path, self._log_dir = os.path.join(log_dir, name), log_dir
        self._records = r.RecordWriter(self.path)
        self._lock, self._max, self._every = threading.Lock(), max_queue, flush_secs
        self._waiting, self._flushed = 0, time.time()
        self._write(r.double(1, time.time()) + r.blob(3, "brain.Event:2"))
        self.flush()

    def get_logdir(self):
        return self._log_dir

    def add_value(self, value, global_step=None, walltime=None):
        """One value of a summary, a message, at a step."""
        event = r.double(1, time.time() if walltime is None else walltime)
        if global_step is not None:
            event += r.integer(2, int(global_step))
        self._write(event + r.blob(5, r.blob(1, value)))

    def _write(self, event):
        with self._lock:
            self._records.write(event)
            self._waiting += 1
            if self._waiting >= self._max or time.time() - self._flushed > self._every:
                self.flush()

    def flush(self):
        self._records.flush()
        self._waiting, self._flushed = 0, time.time()

    def close(self):
        self._records.close()


class SummaryWriter:
    """Writes to log_dir, by default `runs/<time>_<host><comment>`. Steps are ints; what is written
    after close() goes to a new file.
    """

    def __init__(
        self,
        log_dir=None,
        comment="",
        purge_step=None,
        max_queue=10,
        flush_secs=120,
        filename_suffix="",
    ):
        if not log_dir:
            now = time.strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir, self.purge_step = log_dir, purge_step
        self.max_queue, self.flush_secs = max_queue, flush_secs
        self.filename_suffix = filename_suffix
        self.file_writer = None
        self.all_writers = {}
        self._get_file_writer()

    def _get_file_writer(self):
        if self.file_writer is None:
            made = FileWriter(self.log_dir, self.max_queue, self.flush_secs, self.filename_suffix)
            self.file_writer = made
            self.all_writers[made.get_logdir()] = made
            if self.purge_step is not None:  # what a run that crashed wrote from there on is void
                made._write(
                    r.double(1, time.time())
                    + r.integer(2, self.purge_step)
                    + r.blob(7, r.integer(1, 1))
                )
                self.purge_step = None
        return self.file_writer

    def get_logdir(self):
        return self.log_dir

    def add_scalar(
        self,
        tag,
        scalar_value,
        global_step=None,
        walltime=None,
        new_style=False,
        double_precision=False,
    ):
        """A number, or a tensor or an array of one element."""
        value = summaries.scalar(tag, scalar_value)
        self._get_file_writer().add_value(value, global_step, walltime)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Numbers to be shown in one plot: each has a folder and a file of its own."""
        home = self._get_file_writer().get_logdir()
        for tag, x in tag_scalar_dict.items():
            place = f"{home}/{main_tag.replace('/', '_')}_{tag}"
            if place not in self.all_writers:
                self.all_writers[place] = FileWriter(
                    place, self.max_queue, self.flush_secs, self.filename_suffix
                )
            value = summaries.scalar(main_tag, x)
            self.all_writers[place].add_value(value, global_step, walltime)

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        value = summaries.text(tag, text_string)
        self._get_file_writer().add_value(value, global_step, walltime)

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        """A tensor or an array: floats in [0, 1] or uint8; dataformats names its dims."""
        value = summaries.image(tag, img_tensor, dataformats)
        self._get_file_writer().add_value(value, global_step, walltime)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """Several, shown side by side."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        """A figure of matplotlib, or a list of them; they are closed unless close=False."""
        import matplotlib.pyplot as plt
        import numpy
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figures = figure if isinstance(figure, list) else [figure]
        drawn = []
        for one in figures:
            canvas = FigureCanvasAgg(one)
            canvas.draw()
            drawn.append(numpy.asarray(canvas.buffer_rgba())[..., :3].copy())
            if close:
                plt.close(one)
        if isinstance(figure, list):
            pixels = numpy.stack(drawn)
            self.add_image(tag, pixels, global_step, walltime, dataformats="NHWC")
        else:
            self.add_image(tag, drawn[0], global_step, walltime, dataformats="HWC")

    def add_histogram(
        self,
        tag,
        values,
        global_step=None,
        bins="tensorflow",
        walltime=None,
        max_bins=None,
    ):
        """How values spread over buckets: TensorBoard's, as many equal ones as `bins` says, or
        those between the given edges."""
        value = summaries.histogram(tag, values, bins)
        self._get_file_writer().add_value(value, global_step, walltime)

    def add_hparams(
        self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None, global_step=None
    ):
        """Settings of a run, as a text, and what came of it, as scalars, in a folder of its own."""
        if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
            raise TypeError("[tensorboard] hparam_dict and metric_dict must be dictionaries")
        home = self._get_file_writer().get_logdir()
        with SummaryWriter(os.path.join(home, run_name or str(time.time()))) as writer:
            rows = "\n".join(f"|{k}|{v}|" for k, v in hparam_dict.items())
            writer.add_text("hparams", f"|name|value|\n|-|-|\n{rows}")
            for name, x in metric_dict.items():
                writer.add_scalar(name, x, global_step)

    def flush(self):
        for writer in self.all_writers.values():
            writer.flush()

    def close(self):
        for writer in self.all_writers.values():
            writer.flush()
            writer.close()
        self.file_writer = None
        self.all_writers = {}

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        self.close()
