/*
 * names.so answers the lookups for which nft reads files of the host: the names of protocols (/etc/protocols, by way of
 * /etc/nsswitch.conf), of users and groups (the same way), and of marks, realms, interface groups and connection labels
 * (/etc/iproute2/, /etc/connlabel.conf). Minimal hosts lack these files; then nft cannot parse "tcp" in a key of type
 * inet_proto and lists it as 6, and kube-proxy, which compares the text of keys, deletes the rules of Services. The launcher
 * preloads this library into the bundled nft only.
 */

#define _LARGEFILE64_SOURCE /* fopen64 */
#include <errno.h>
#include <grp.h>
#include <netdb.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

static char *no_aliases[] = { NULL };

/* The names that Debian's netbase has for IANA's protocol numbers. The first entry of a number is its name. */
static struct protoent protocols[] = {
#define P(number, name) { name, no_aliases, number }
	P(0, "ip"), P(0, "hopopt"), P(1, "icmp"), P(2, "igmp"), P(3, "ggp"), P(4, "ipencap"), P(5, "st"), P(6, "tcp"),
	P(8, "egp"), P(9, "igp"), P(12, "pup"), P(17, "udp"), P(20, "hmp"), P(22, "xns-idp"), P(27, "rdp"),
	P(29, "iso-tp4"), P(33, "dccp"), P(36, "xtp"), P(37, "ddp"), P(38, "idpr-cmtp"), P(41, "ipv6"),
	P(43, "ipv6-route"), P(44, "ipv6-frag"), P(45, "idrp"), P(46, "rsvp"), P(47, "gre"), P(50, "esp"), P(51, "ah"),
	P(57, "skip"), P(58, "ipv6-icmp"), P(59, "ipv6-nonxt"), P(60, "ipv6-opts"), P(73, "rspf"), P(81, "vmtp"),
	P(88, "eigrp"), P(89, "ospf"), P(93, "ax.25"), P(94, "ipip"), P(97, "etherip"), P(98, "encap"), P(103, "pim"),
	P(108, "ipcomp"), P(112, "vrrp"), P(115, "l2tp"), P(124, "isis"), P(132, "sctp"), P(133, "fc"),
	P(135, "mobility-header"), P(136, "udplite"), P(137, "mpls-in-ip"), P(138, "manet"), P(139, "hip"),
	P(140, "shim6"), P(141, "wesp"), P(142, "rohc"), P(143, "ethernet"), P(262, "mptcp"),
#undef P
};

#define COUNT (sizeof protocols / sizeof protocols[0])

struct protoent *getprotobynumber(int number)
{
	for (size_t i = 0; i < COUNT; i++)
		if (protocols[i].p_proto == number)
			return &protocols[i];
	return NULL;
}

struct protoent *getprotobyname(const char *name)
{
	for (size_t i = 0; i < COUNT; i++)
		if (strcmp(protocols[i].p_name, name) == 0)
			return &protocols[i];
	return NULL;
}

/*
 * Users and groups are numbers. To look for their names, the C library would load modules of the host (/etc/nsswitch.conf),
 * which may need another C library than ours.
 */
struct passwd *getpwnam(const char *name)
{
	return (void)name, NULL;
}

struct group *getgrnam(const char *name)
{
	return (void)name, NULL;
}

struct passwd *getpwuid(uid_t id)
{
	return (void)id, NULL;
}

struct group *getgrgid(gid_t id)
{
	return (void)id, NULL;
}

/* Hides the files with names for numbers. fopen64 is the C library's fopen under its other name. */
FILE *fopen(const char *path, const char *mode)
{
	static const char directory[] = "/etc/iproute2/";

	if (strncmp(path, directory, sizeof directory - 1) == 0 || strcmp(path, "/etc/connlabel.conf") == 0) {
		errno = ENOENT;
		return NULL;
	}
	return fopen64(path, mode);
}
