/*
 * Runs the nft that lies beside this file in nft.d through the loader and the libraries that lie there too, so that
 * it works on a host with another C library or none. It preloads names.so (names.c), so that nft reads no names from the
 * host's /etc. Free-standing, for the same reason, and 1 KB small.
 */

#if defined(__x86_64__)
#define SYS_EXECVE 59
#define SYS_EXIT 60
#define SYS_READLINKAT 267
#define SYS_WRITE 1
static long call(long n, long a, long b, long c, long d)
{
	long r;
	register long r10 __asm__("r10") = d;
	__asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return r;
}
__asm__(".globl _start\n_start:\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall launch\n");
#elif defined(__aarch64__)
#define SYS_EXECVE 221
#define SYS_EXIT 93
#define SYS_READLINKAT 78
#define SYS_WRITE 64
static long call(long n, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}
__asm__(".globl _start\n_start:\n\tmov x0, sp\n\tbl launch\n");
#else
#error "no launcher for this architecture"
#endif

#define PATH_SIZE 4096
#define MAX_ARGS 4096

static char *put(char *to, const char *text)
{
	while ((*to = *text++))
		to++;
	return to;
}

static __attribute__((noreturn)) void die(const char *message)
{
	long n = 0;
	while (message[n])
		n++;
	call(SYS_WRITE, 2, (long)message, n, 0);
	call(SYS_EXIT, 127, 0, 0, 0);
	__builtin_unreachable();
}

static char dir[PATH_SIZE], loader[PATH_SIZE], nft[PATH_SIZE];
static char *args[MAX_ARGS];

__attribute__((noreturn, used)) void launch(long *stack)
{
	long argc = stack[0];
	char **argv = (char **)(stack + 1), **env = argv + argc + 1;
	long n = call(SYS_READLINKAT, -100 /* AT_FDCWD */, (long)"/proc/self/exe", (long)dir, PATH_SIZE - 32);

	/* LD_PRELOAD and its like are for the host's C library. */
	char **kept = env;
	for (char **e = env; *e; e++)
		if ((*e)[0] != 'L' || (*e)[1] != 'D' || (*e)[2] != '_')
			*kept++ = *e;
	*kept = 0;

	if (n <= 0)
		die("nft: finding its own path: is /proc mounted?\n");
	if (argc + 8 >= MAX_ARGS)
		die("nft: too many arguments\n");
	while (n > 0 && dir[n - 1] != '/')
		n--;
	put(dir + n, "nft.d");
	put(put(loader, dir), "/ld.so");
	put(put(nft, dir), "/nft");

	long i = 0;
	args[i++] = "nft";
	args[i++] = "--inhibit-cache";
	args[i++] = "--library-path";
	args[i++] = dir;
	args[i++] = "--preload"; /* without its directory, where a space or a colon would separate: it is in the library path */
	args[i++] = "names.so";
	args[i++] = nft;
	for (long a = 1; a < argc; a++)
		args[i++] = argv[a];
	call(SYS_EXECVE, (long)loader, (long)args, (long)env, 0);
	die("nft: cannot run its loader, nft.d/ld.so: the payload is damaged\n");
}
