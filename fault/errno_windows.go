package fault

import "syscall"

// foreignErrnos are the errors of Windows (below 10000) and of its sockets that
// mean what a number of POSIX means.
var foreignErrnos = map[syscall.Errno][]syscall.Errno{
	syscall.EACCES:       {5, 10013},
	syscall.EADDRINUSE:   {10048},
	syscall.EAGAIN:       {10035},
	syscall.ECONNREFUSED: {10061},
	syscall.ECONNRESET:   {10054, 10053, 64},
	syscall.EDQUOT:       {1295},
	syscall.EFBIG:        {223},
	syscall.EHOSTUNREACH: {10065},
	syscall.EIO:          {23, 1117, 1392, 1393},
	syscall.EMFILE:       {4, 10024},
	syscall.ENAMETOOLONG: {206},
	syscall.ENETUNREACH:  {10051},
	syscall.ENOENT:       {2, 3},
	syscall.ENOSPC:       {112, 39},
	syscall.ENOTDIR:      {267},
	syscall.EPIPE:        {109, 232, 10058},
	syscall.EROFS:        {19},
}
