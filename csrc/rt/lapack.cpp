// Factorisations of matrices by LAPACK, which comes with OpenBLAS: LU, Cholesky, QR, singular values, eigenvalues, least squares.
//
// Operands come in any strides, the last two dims being matrices and those before a batch. LAPACK's matrices lie in columns, and
// so do those that leave here (the declarations' layouts say so). Each matrix of a batch is one call on one thread.
// What LAPACK finds wrong is told after all matrices are done, for the first at fault, and only where `check` asks for it.
#include <cmath>
#include <complex>
#include <string>

#include "libraries.h"
#include "typed.h"

namespace rl {
namespace {

enum { kColumns = 102, kLeft = 141, kRight = 142, kNoTranspose = 111, kUpper = 121, kLower = 122, kNonUnit = 131, kUnit = 132 };

template <class T>
struct Lapack {
  int (*getrf)(int, int m, int n, T* a, int lda, int* pivots);
  int (*getrs)(int, char trans, int n, int columns, const T* a, int lda, const int* pivots, T* b, int ldb);
  int (*potrf)(int, char uplo, int n, T* a, int lda);
  int (*geqrf)(int, int m, int n, T* a, int lda, T* tau);
  int (*orgqr)(int, int m, int n, int k, T* a, int lda, const T* tau);
  int (*gesdd)(int, char job, int m, int n, T* a, int lda, T* s, T* u, int ldu, T* vt, int ldvt);
  int (*syevd)(int, char job, char uplo, int n, T* a, int lda, T* w);
  int (*geev)(int, char left, char right, int n, T* a, int lda, T* re, T* im, T* vl, int ldvl, T* vr, int ldvr);
  int (*gelsy)(int, int m, int n, int columns, T* a, int lda, T* b, int ldb, int* pivots, T rcond, int* rank);
  void (*trsm)(int, int side, int uplo, int trans, int diag, int m, int n, T alpha, const T* a, int lda, T* b, int ldb);
};

template <class T>
const Lapack<T>& lapack(const char* op) {
  static const Lapack<T> table = [] {
    Lapack<T> l{};
    const std::string letter = std::is_same_v<T, float> ? "s" : "d";
    bool whole = true;
    const auto find = [&](auto& function, const char* before, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(openblas_symbol((before + letter + name).c_str()));
      whole = whole && function;
    };
    find(l.getrf, "scipy_LAPACKE_", "getrf");
    find(l.getrs, "scipy_LAPACKE_", "getrs");
    find(l.potrf, "scipy_LAPACKE_", "potrf");
    find(l.geqrf, "scipy_LAPACKE_", "geqrf");
    find(l.orgqr, "scipy_LAPACKE_", "orgqr");
    find(l.gesdd, "scipy_LAPACKE_", "gesdd");
    find(l.syevd, "scipy_LAPACKE_", "syevd");
    find(l.geev, "scipy_LAPACKE_", "geev");
    find(l.gelsy, "scipy_LAPACKE_", "gelsy");
    find(l.trsm, "scipy_cblas_", "trsm");
    if (!whole) l.getrf = nullptr;
    if (const auto check_nan = reinterpret_cast<void (*)(int)>(openblas_symbol("scipy_LAPACKE_set_nancheck"))) check_nan(0);
    return l;
  }();
  if (!table.getrf)
    fail(ErrorKind::NotImplemented, "[%s] needs LAPACK, which comes with OpenBLAS: no such library was found here (scipy-openblas32)", op);
  return table;
}

// A batch of matrices with any strides.
struct Matrices {
  const Layout* layout;
  int64_t rows, columns, count = 1;
  const char* data;

  Matrices(const char* op, const RoutineOperand& x) : layout(x.layout), data(static_cast<const char*>(x.data)) {
    rows = layout->dims[layout->ndim - 2];
    columns = layout->dims[layout->ndim - 1];
    for (int d = 0; d < layout->ndim - 2; d++) count *= layout->dims[d];
    if (rows > INT32_MAX || columns > INT32_MAX)
      fail(ErrorKind::Runtime, "[%s] matrices of %s are too large for LAPACK", op, shape_text(layout->ndim, layout->dims).c_str());
  }
  // Matrix i in columns, `leading` apart.
  template <class T>
  void load(int64_t i, T* to, int64_t leading) const {
    int64_t offset = 0;
    for (int d = layout->ndim - 3; d >= 0; d--) {
      offset += i % layout->dims[d] * layout->strides()[d];
      i /= layout->dims[d];
    }
    const T* from = reinterpret_cast<const T*>(data) + offset;
    const int64_t down = layout->strides()[layout->ndim - 2], across = layout->strides()[layout->ndim - 1];
    for (int64_t c = 0; c < columns; c++)
      for (int64_t r = 0; r < rows; r++) to[c * leading + r] = from[r * down + c * across];
  }
};

int64_t batch_of(const Layout* l, int inner) {
  int64_t n = 1;
  for (int d = 0; d < l->ndim - inner; d++) n *= l->dims[d];
  return n;
}

int leading_of(int64_t rows) { return static_cast<int>(std::max<int64_t>(rows, 1)); }

template <class T>
bool finite(const std::vector<T>& v) {
  return std::all_of(v.begin(), v.end(), [](T x) { return std::isfinite(x); });
}

// f(LAPACK's functions for the dtype of `a`, a zero of it, i) for each of `count` matrices, several at a time; work is about
// rows * columns * the lesser of them each. What f gives: what LAPACK said of the matrix, 0 for nothing.
template <class F>
std::vector<int> each(const RoutineCall& c, const Matrices& a, int64_t count, int64_t rows, int64_t columns, const F& f) {
  std::vector<int> said(static_cast<size_t>(count));
  with_floats(c.op, a.layout->dtype, [&](auto zero) {
    const auto& l = lapack<decltype(zero)>(c.op);
    parallel(count, grain_of(rows * columns * std::min(rows, columns)), [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; i++) said[static_cast<size_t>(i)] = f(l, zero, i);
    });
  });
  return said;
}

// The first matrix that LAPACK objected to: what it said, and how an error names the matrix.
struct Objection {
  int said = 0;
  std::string where;
  Objection(const std::vector<int>& all, const Layout* l) {
    for (size_t i = 0; i < all.size() && !said; i++)
      if ((said = all[i]) && l->ndim > 2) where = "(Batch element " + std::to_string(i) + "): ";
  }
  explicit operator bool() const { return said; }
};

template <class T>
std::vector<T> columns_of(const Matrices& a, int64_t i) {
  std::vector<T> x(static_cast<size_t>(a.rows * a.columns));
  a.load(i, x.data(), a.rows);
  return x;
}

// ---- In the place of gradients that do not exist. ints: which.

void run_refusal(const RoutineCall& c) {
  if (!c.out[0].layout->numel) return;
  switch (c.ints[0]) {
    case 0: fail(ErrorKind::Runtime, "[linalg.qr] the whole Q of a tall matrix (mode='complete') "
                                     "is not differentiable: 'reduced' is");
    case 1: fail(ErrorKind::NotImplemented, "[linalg.lu_factor] factorisations of matrices that are not square have no derivative here");
    default: fail(ErrorKind::NotImplemented, "[linalg.eig] its derivative is not there yet; linalg.eigh has one, for symmetric matrices");
  }
}
RL_ROUTINE(lapack_refusal, run_refusal)

// ---- A = P L U. ints: what a pivot of 0 means (0: nothing, `info` says it; 1: no solution; 2: no inverse; 3: no factors to solve with).

void run_lu(const RoutineCall& c) {
  const Matrices a(c.op, c.in[0]);
  const int m = static_cast<int>(a.rows), n = static_cast<int>(a.columns), least = std::min(m, n);
  const auto said = each(c, a, a.count, m, n, [&](const auto& l, auto zero, int64_t i) {
    auto* lu = c.out[0].as<decltype(zero)>() + i * m * n;
    a.load(i, lu, m);
    return c.out[2].as<int>()[i] = least ? l.getrf(kColumns, m, n, lu, m, c.out[1].as<int>() + i * least) : 0;
  });
  const Objection wrong(said, a.layout);
  if (!wrong || !c.ints[0]) return;
  if (c.ints[0] == 1)
    fail(ErrorKind::LinearAlgebra, "[linalg.solve] %sthe matrix is singular", wrong.where.c_str());
  if (c.ints[0] == 2)
    fail(ErrorKind::LinearAlgebra, "[linalg.inv] %sdiagonal element %d is zero: the matrix is "
                                   "singular", wrong.where.c_str(), wrong.said);
  fail(ErrorKind::Runtime, "[linalg.lu_factor] %sU[%d,%d] is zero, by which lu_solve would "
                           "divide: linalg.lu and linalg.lu_factor_ex factor such a matrix all "
                           "the same",
       wrong.where.c_str(), wrong.said, wrong.said);
}
RL_ROUTINE(lapack_lu, run_lu)

// ---- The order in which rows stand after a factorisation's exchanges: A[order] = L U.

void run_row_order(const RoutineCall& c) {
  const Layout *pivots = c.in[0].layout, *order = c.out[0].layout;
  const int64_t count = batch_of(order, 1), n = order->dims[order->ndim - 1], k = pivots->dims[pivots->ndim - 1];
  for (int64_t i = 0; i < count; i++) {
    int64_t* to = c.out[0].as<int64_t>() + i * n;
    for (int64_t j = 0; j < n; j++) to[j] = j;
    for (int64_t j = 0; j < k; j++) {
      const int64_t at = c.in[0].as<int32_t>()[i * k + j] - 1;
      if (at < 0 || at >= n)
        fail(ErrorKind::Index, "[%s] pivot %lld is out of range for %lld rows", c.op, static_cast<long long>(at + 1), static_cast<long long>(n));
      std::swap(to[j], to[at]);
    }
  }
}
RL_ROUTINE(lapack_row_order, run_row_order)

// ---- op(A) X = B from A's factors. ints: whether op transposes.

void run_lu_solve(const RoutineCall& c) {
  const Matrices a(c.op, c.in[0]), b(c.op, c.in[2]);
  const int n = static_cast<int>(b.rows), k = static_cast<int>(b.columns);
  const Layout* pivots = c.in[1].layout;
  std::vector<int> orders(static_cast<size_t>(b.count * n));     // of all matrices, checked before anything runs
  for (int64_t i = 0; i < b.count; i++) {
    int64_t left = i, at = 0;
    for (int d = pivots->ndim - 2; d >= 0; d--) {
      at += left % pivots->dims[d] * pivots->strides()[d];
      left /= pivots->dims[d];
    }
    for (int j = 0; j < n; j++) {
      const int pivot = c.in[1].as<int>()[at + j * pivots->strides()[pivots->ndim - 1]];
      if (pivot < 1 || pivot > n)
        fail(ErrorKind::Runtime, "[linalg.lu_solve] Pivots given to lu_solve must be from 1 to %d, the number of rows, got %d", n, pivot);
      orders[static_cast<size_t>(i * n + j)] = pivot;
    }
  }
  each(c, a, b.count, n, std::max(n, k), [&](const auto& l, auto zero, int64_t i) {
    typedef decltype(zero) T;
    T* x = c.out[0].as<T>() + i * n * k;
    b.load(i, x, n);
    if (!n || !k) return 0;
    const std::vector<T> lu = columns_of<T>(a, i);
    return l.getrs(kColumns, c.ints[0] ? 'T' : 'N', n, k, lu.data(), n, &orders[static_cast<size_t>(i * n)], x, n);
  });
}
RL_ROUTINE(lapack_lu_solve, run_lu_solve)

// ---- A X = B or X A = B, A a triangle. ints: upper, ones on its diagonal, A stands at the left.

void run_triangular(const RoutineCall& c) {
  const Matrices a(c.op, c.in[0]), b(c.op, c.in[1]);
  const int m = static_cast<int>(b.rows), k = static_cast<int>(b.columns), n = static_cast<int>(a.rows);
  each(c, a, b.count, m, std::max(m, k), [&](const auto& l, auto zero, int64_t i) {
    typedef decltype(zero) T;
    T* x = c.out[0].as<T>() + i * m * k;
    b.load(i, x, m);
    if (!m || !k) return 0;
    const std::vector<T> triangle = columns_of<T>(a, i);
    l.trsm(kColumns, c.ints[2] ? kLeft : kRight, c.ints[0] ? kUpper : kLower, kNoTranspose, c.ints[1] ? kUnit : kNonUnit, m, k, T(1),
           triangle.data(), n, x, m);
    return 0;
  });
}
RL_ROUTINE(lapack_triangular, run_triangular)

// ---- A = L L.T, or U.T U. ints: upper, check.

void run_cholesky(const RoutineCall& c) {
  const Matrices a(c.op, c.in[0]);
  const int n = static_cast<int>(a.rows);
  const bool upper = c.ints[0] != 0;
  const auto said = each(c, a, a.count, n, n, [&](const auto& l, auto zero, int64_t i) {
    auto* x = c.out[0].as<decltype(zero)>() + i * n * n;
    a.load(i, x, n);
    const int info = n ? l.potrf(kColumns, upper ? 'U' : 'L', n, x, n) : 0;
    for (int64_t column = 0; column < n; column++) {
      const int64_t from = upper ? column + 1 : 0, to = upper ? n : column;
      std::fill(x + column * n + from, x + column * n + to, zero);
    }
    return c.out[1].as<int>()[i] = info;
  });
  const Objection wrong(said, a.layout);
  if (wrong && c.ints[1])
    fail(ErrorKind::LinearAlgebra, "[linalg.cholesky] %sthe matrix is not positive-definite: the "
                                   "leading minor of order %d is not", wrong.where.c_str(), wrong.said);
}
RL_ROUTINE(lapack_cholesky, run_cholesky)

// ---- A = Q R. ints: how many columns Q has (0: it is not wanted).

void run_qr(const RoutineCall& c) {
  const Matrices a(c.op, c.in[0]);
  const int m = static_cast<int>(a.rows), n = static_cast<int>(a.columns), least = std::min(m, n);
  const int wanted = static_cast<int>(c.ints[0]), rows = static_cast<int>(c.out[1].layout->dims[c.out[1].layout->ndim - 2]);
  const auto said = each(c, a, a.count, m, std::max(m, n), [&](const auto& l, auto zero, int64_t i) {
    typedef decltype(zero) T;
    std::vector<T> x(static_cast<size_t>(m) * static_cast<size_t>(std::max({n, wanted, 1}))), tau(static_cast<size_t>(std::max(least, 1)));
    a.load(i, x.data(), m);
    int info = least ? l.geqrf(kColumns, m, n, x.data(), leading_of(m), tau.data()) : 0;
    T* r = c.out[1].as<T>() + i * rows * n;
    for (int64_t column = 0; column < n; column++)
      for (int64_t row = 0; row < rows; row++) r[column * rows + row] = row <= column ? x[static_cast<size_t>(column * m + row)] : T(0);
    if (!wanted) return info;
    if (least)
      info |= l.orgqr(kColumns, m, wanted, std::min(least, wanted), x.data(), leading_of(m), tau.data());
    else
      for (int64_t j = 0; j < static_cast<int64_t>(m) * wanted; j++) x[static_cast<size_t>(j)] = T(j / m == j % m);
    std::copy(x.begin(), x.begin() + static_cast<int64_t>(m) * wanted, c.out[0].as<T>() + i * m * wanted);
    return info;
  });
  if (Objection(said, a.layout)) fail(ErrorKind::LinearAlgebra, "[linalg.qr] LAPACK refused its input");
}
RL_ROUTINE(lapack_qr, run_qr)

// ---- A = U S V.T: (U, S, V.T), or S alone. ints: whether U and V are square.

void run_svd(const RoutineCall& c) {
  const Matrices a(c.op, c.in[0]);
  const int m = static_cast<int>(a.rows), n = static_cast<int>(a.columns), least = std::min(m, n);
  const bool vectors = c.nout == 3, full = vectors && c.ints[0];
  const int left = full ? m : least, right = full ? n : least;
  const auto said = each(c, a, a.count, m, n, [&](const auto& l, auto zero, int64_t i) {
    typedef decltype(zero) T;
    std::vector<T> x = columns_of<T>(a, i);
    T* s = c.out[vectors ? 1 : 0].template as<T>() + i * least;
    T* u = vectors ? c.out[0].as<T>() + i * m * left : nullptr;
    T* v = vectors ? c.out[2].as<T>() + i * right * n : nullptr;
    if (!least) {
      for (int64_t j = 0; u && j < static_cast<int64_t>(m) * left; j++) u[j] = T(j / m == j % m);
      for (int64_t j = 0; v && j < static_cast<int64_t>(right) * n; j++) v[j] = T(j / right == j % right);
      return 0;
    }
    if (!finite(x)) return -1;
    return l.gesdd(kColumns, !vectors ? 'N' : full ? 'A' : 'S', m, n, x.data(), m, s, u ? u : &zero, m, v ? v : &zero, leading_of(right));
  });
  const Objection wrong(said, a.layout);
  if (!wrong) return;
  if (wrong.said < 0)
    fail(ErrorKind::LinearAlgebra, "[linalg.svd] %sthe matrix has infinite or NaN elements",
         wrong.where.c_str());
  fail(ErrorKind::LinearAlgebra, "[linalg.svd] %sthe iteration did not converge, LAPACK says %d: "
                                 "singular values lie too close", wrong.where.c_str(), wrong.said);
}
RL_ROUTINE(lapack_svd, run_svd)

// ---- A = V diag(w) V.T of symmetric A, of which one triangle is read: (w, V), or w alone. ints: upper.

void run_eigh(const RoutineCall& c) {
  const Matrices a(c.op, c.in[0]);
  const int n = static_cast<int>(a.rows);
  const bool vectors = c.nout == 2;
  const auto said = each(c, a, a.count, n, n, [&](const auto& l, auto zero, int64_t i) {
    typedef decltype(zero) T;
    std::vector<T> v = columns_of<T>(a, i);
    T* w = c.out[0].as<T>() + i * n;
    bool fine = true;                                  // of the triangle that is read
    for (int64_t j = 0; j < static_cast<int64_t>(n) * n; j++)
      if (c.ints[0] ? j % n <= j / n : j % n >= j / n) fine = fine && std::isfinite(v[static_cast<size_t>(j)]);
    const int info = n && fine ? l.syevd(kColumns, vectors ? 'V' : 'N', c.ints[0] ? 'U' : 'L', n, v.data(), n, w) : 0;
    if (!fine) {
      std::fill(w, w + n, std::numeric_limits<T>::quiet_NaN());
      std::fill(v.begin(), v.end(), std::numeric_limits<T>::quiet_NaN());
    }
    if (vectors) std::copy(v.begin(), v.end(), c.out[1].as<T>() + i * n * n);
    return info;
  });
  if (const Objection wrong{said, a.layout})
    fail(ErrorKind::LinearAlgebra, "[linalg.eigh] %sthe iteration did not converge, LAPACK says "
                                   "%d: eigenvalues lie too close", wrong.where.c_str(), wrong.said);
}
RL_ROUTINE(lapack_eigh, run_eigh)

// ---- A V = V diag(w), complex: (w, V), or w alone.

void run_eig(const RoutineCall& c) {
  const Matrices a(c.op, c.in[0]);
  const int n = static_cast<int>(a.rows);
  const bool vectors = c.nout == 2;
  const auto said = each(c, a, a.count, n, n, [&](const auto& l, auto zero, int64_t i) {
    typedef decltype(zero) T;
    std::vector<T> x = columns_of<T>(a, i), re(static_cast<size_t>(n)), im(re), v(vectors ? x.size() : 1);
    if (!n) return 0;
    if (!finite(x)) return -1;
    const int info = l.geev(kColumns, 'N', vectors ? 'V' : 'N', n, x.data(), n, re.data(), im.data(), &zero, 1, v.data(), vectors ? n : 1);
    if (info) return info;
    std::complex<T>* w = c.out[0].as<std::complex<T>>() + i * n;
    for (size_t j = 0; j < re.size(); j++) w[j] = {re[j], im[j]};
    if (!vectors) return 0;
    std::complex<T>* to = c.out[1].as<std::complex<T>>() + i * n * n;
    for (size_t j = 0; j < re.size(); j++) {           // a pair of conjugates shares two columns: real parts, imaginary parts
      const bool first = im[j] > 0, second = im[j] < 0;
      const size_t real = (second ? j - 1 : j) * re.size(), imaginary = real + re.size();
      for (size_t r = 0; r < re.size(); r++)
        to[j * re.size() + r] = {v[real + r], first ? v[imaginary + r] : second ? -v[imaginary + r] : T(0)};
    }
    return 0;
  });
  const Objection wrong(said, a.layout);
  if (!wrong) return;
  if (wrong.said < 0) fail(ErrorKind::Runtime, "[linalg.eig] %sthe matrix has infinite or NaN elements", wrong.where.c_str());
  fail(ErrorKind::LinearAlgebra, "[linalg.eig] %sthe iteration did not converge, LAPACK says %d", wrong.where.c_str(), wrong.said);
}
RL_ROUTINE(lapack_eig, run_eig)

// ---- The X of least norm with the least |A X - B|: (X, A's rank). numbers: singular values below this share of the largest are 0.

void run_least_squares(const RoutineCall& c) {
  const Matrices a(c.op, c.in[0]), b(c.op, c.in[1]);
  const int m = static_cast<int>(a.rows), n = static_cast<int>(a.columns), k = static_cast<int>(b.columns), most = std::max({m, n, 1});
  each(c, a, b.count, most, std::max(n, k), [&](const auto& l, auto zero, int64_t i) {
    typedef decltype(zero) T;
    std::vector<T> x = columns_of<T>(a, i), y(static_cast<size_t>(most) * static_cast<size_t>(k));
    std::vector<int> pivots(static_cast<size_t>(n));
    b.load(i, y.data(), most);
    int rank = 0, info = 0;
    if (m && n && k)
      info = l.gelsy(kColumns, m, n, k, x.data(), m, y.data(), most, pivots.data(), static_cast<T>(c.numbers[0].f), &rank);
    else
      std::fill(y.begin(), y.end(), T(0));
    c.out[1].as<int64_t>()[i] = rank;
    for (int64_t column = 0; column < k; column++)
      std::copy_n(y.begin() + column * most, n, c.out[0].as<T>() + (i * k + column) * n);
    return info;
  });
}
RL_ROUTINE(lapack_least_squares, run_least_squares)

}  // namespace
}  // namespace rl
